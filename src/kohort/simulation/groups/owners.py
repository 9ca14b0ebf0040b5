"""Observes a run from outside: the owners of partitions over time."""

from __future__ import annotations

from kohort.group.events import Ownership
from kohort.observe.timeline import OwnershipTimeline
from kohort.simulation.groups.base import BaseClient
from kohort.simulation.groups.world import World
from kohort.types import TopicPartition


class Owners:
    """Collects changes of ownership as applications learn them.

    A partition has an owner from the call that assigns it to the end of the call that takes it
    away, or to the death of the process. Where two believe that they own it (one may have been
    suspended), the later one counts.

    Args:
        world: The run to observe, before it begins.
    """

    def __init__(self, world: World) -> None:
        self._engine = world.engine
        self._changes: list[tuple[int, TopicPartition, str | None]] = []
        self._owner: dict[TopicPartition, str | None] = {}
        world.listeners.append(self._change)

    def _change(
        self, client: BaseClient, change: Ownership, partitions: frozenset[TopicPartition]
    ) -> None:
        owner = client.name if change is Ownership.ASSIGNED else None
        for partition in sorted(partitions):
            if owner is None and self._owner.get(partition) != client.name:
                continue
            self._owner[partition] = owner
            self._changes.append((self._engine.now, partition, owner))

    def timeline(self) -> OwnershipTimeline:
        """Return the timeline of all partitions that ever had an owner."""
        timeline = OwnershipTimeline(self._owner, 0)
        for now, partition, owner in self._changes:
            timeline.own(partition, owner, now)
        return timeline
