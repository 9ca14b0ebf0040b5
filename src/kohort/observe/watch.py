"""Watchers: turn observations of a group into its ownership timeline and its rebalances.

`EventWatch` follows the events of an embedded broker's coordinator and is exact. `SnapshotWatch`
follows repeated descriptions of the group from any Kafka, and is as exact as they are frequent; it
cannot know causes and does not guess them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from msgspec import Struct

from kohort.group import events
from kohort.group.assignors import BUILTIN_ASSIGNORS, RebalanceProtocol
from kohort.observe.rebalances import Rebalance, RebalanceLog
from kohort.observe.timeline import OwnershipTimeline
from kohort.types import TopicPartition


class EventWatch:
    """Follows one group by its coordinator's events; may be fed from any thread."""

    def __init__(self, group: str, partitions: Iterable[TopicPartition], start_ms: int) -> None:
        """Watch `group`, starting without any knowledge of it.

        Args:
            group: Group id; events of other groups are ignored.
            partitions: The partitions to follow.
            start_ms: The current time, by the clock of the events.
        """
        self.timeline = OwnershipTimeline(partitions, start_ms)
        self._group = group
        self._log = RebalanceLog(self.timeline)
        self._labels: dict[str, str] = {}
        self._is_classic = False
        self._kept: frozenset[TopicPartition] = frozenset()  # the assignment of the last generation
        self._target: dict[str, tuple[TopicPartition, ...]] = {}
        self._epoch = 0
        self._lock = threading.Lock()

    @property
    def rebalances(self) -> tuple[Rebalance, ...]:
        """The completed rebalances."""
        with self._lock:
            return tuple(self._log.finished)

    def owned_by(self, label: str) -> int:
        """Return how many partitions a member currently owns, by its client id."""
        with self._lock:
            return sum(owner == label for owner in self.timeline.owners().values())

    def gone(self, label: str, now_ms: int) -> None:
        """Record that a member was seen to die, before its coordinator can know."""
        with self._lock:
            self.timeline.release_all(label, now_ms)

    def on_event(self, event: events.GroupEvent) -> None:
        """Process the next event of the coordinator."""
        if event.group != self._group:
            return
        with self._lock:
            if isinstance(event, events.MemberJoined):
                self._labels[event.member] = event.client_id or event.member
            elif isinstance(event, events.RebalanceStarted):
                self._begin(event)
            elif isinstance(event, events.MemberLeft):
                self.timeline.release_all(self._label(event.member), event.now)
            elif isinstance(event, events.GenerationStarted):
                self._all_joined(event)
            elif isinstance(event, events.Assigned):
                self._assign(event)
            elif isinstance(event, events.MemberReconciled):
                self._has(event.member, event.partitions, event.now)
                self._end_when_all_have_theirs(event.now)

    def _label(self, member: str) -> str:
        return self._labels.get(member, member)

    def _begin(self, event: events.RebalanceStarted) -> None:
        self._target = {}
        self._log.begin(event.now, self._label(event.member), event.cause.value)

    def _all_joined(self, event: events.GenerationStarted) -> None:
        """Release partitions that no member owns any longer, because all have rejoined.

        Eager: each member gave up all its partitions before. Cooperative (KIP-429): the partitions
            that the last generation left without an owner, which were being given up until now.
        """
        self._is_classic = True
        for partition in self.timeline.partitions:
            if partition not in self._kept or not _is_cooperative(event.protocol):
                self.timeline.own(partition, None, event.now)

    def _assign(self, event: events.Assigned) -> None:
        if not self._is_classic:  # KIP-848: the target assignment of the members
            self._target = dict(event.assignments)
            self._epoch = event.generation
            self._end_when_all_have_theirs(event.now)
            return
        self._kept = frozenset(tp for _, partitions in event.assignments for tp in partitions)
        for member, partitions in event.assignments:
            for partition in partitions:
                self.timeline.own(partition, self._label(member), event.now)
        owners = self.timeline.owners()
        if not any(owner and tp not in self._kept for tp, owner in owners.items()):
            self._log.end(event.now, event.generation)  # otherwise another generation assigns them

    def _has(self, member: str, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        label = self._label(member)
        has = frozenset(partitions)
        for partition, owner in self.timeline.owners().items():
            if partition in has:
                self.timeline.own(partition, label, now_ms)
            elif owner == label:
                self.timeline.own(partition, None, now_ms)

    def _end_when_all_have_theirs(self, now_ms: int) -> None:
        wanted = {tp: self._label(member) for member, tps in self._target.items() for tp in tps}
        owners = self.timeline.owners()
        if wanted and all(wanted.get(tp) == owner for tp, owner in owners.items()):
            self._log.end(now_ms, self._epoch)


def _is_cooperative(assignor: str) -> bool:
    known = BUILTIN_ASSIGNORS.get(assignor)
    return known is not None and RebalanceProtocol.COOPERATIVE in known.supported_protocols


class GroupSnapshot(Struct, frozen=True):
    """A group according to one description.

    Attributes:
        stable: Whether the group reports a settled assignment.
        assignments: Client id of each member and its partitions; None if the description lacks
            them, as for a classic group during a rebalance.
    """

    stable: bool
    assignments: Mapping[str, tuple[TopicPartition, ...]] | None


class SnapshotWatch:
    """Follows one group by repeated descriptions of it; may be fed from any thread."""

    def __init__(self, partitions: Iterable[TopicPartition], start_ms: int) -> None:
        """Watch a group, starting without any knowledge of it; arguments as in `EventWatch`."""
        self.timeline = OwnershipTimeline(partitions, start_ms)
        self._log = RebalanceLog(self.timeline)
        self._gone: set[str] = set()
        self._lock = threading.Lock()

    @property
    def rebalances(self) -> tuple[Rebalance, ...]:
        """The completed rebalances; causes only as far as descriptions show them."""
        with self._lock:
            return tuple(self._log.finished)

    def owned_by(self, label: str) -> int:
        """Return how many partitions a member owned when last described, by its client id."""
        with self._lock:
            return sum(owner == label for owner in self.timeline.owners().values())

    def gone(self, label: str, now_ms: int) -> None:
        """Record that a member was seen to die; ignore it in descriptions that still list it."""
        with self._lock:
            self._gone.add(label)
            self.timeline.release_all(label, now_ms)

    def on_snapshot(self, snapshot: GroupSnapshot, now_ms: int) -> None:
        """Process the next description, made at `now_ms`."""
        if snapshot.assignments is None:
            with self._lock:
                self._log.begin(now_ms, "", "the assignment changed")
            return
        owners = {
            partition: label
            for label, partitions in snapshot.assignments.items()
            for partition in partitions
            if label not in self._gone
        }
        with self._lock:
            before = self.timeline.owners()
            changed = any(owners.get(tp) != owner for tp, owner in before.items())
            if changed or not snapshot.stable:
                self._log.begin(now_ms, "", "the assignment changed")
            for partition in self.timeline.partitions:
                self.timeline.own(partition, owners.get(partition), now_ms)
            if snapshot.stable and owners.keys() >= {*self.timeline.partitions}:
                self._log.end(now_ms, len(self._log.finished) + 1)
