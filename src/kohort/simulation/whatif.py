"""What if: one scenario under each group protocol, and what it costs, side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from kohort.group.events import GenerationStarted, Ownership, RebalanceStarted
from kohort.simulation.client import Client
from kohort.simulation.protocols import PROTOCOLS
from kohort.simulation.running import run_world
from kohort.simulation.scenario import Scenario
from kohort.simulation.world import World
from kohort.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Cost:
    """What a scenario costs under one protocol.

    Attributes:
        protocol: The protocol.
        verdict: "ok", or what went wrong.
        moved: How often a partition went from one member to another.
        rounds: How many generations or epochs began.
        gaps: How often a partition was without an owner.
        gap_p50_ms: Median time without an owner.
        gap_p99_ms: The longest one but for a hundredth.
        unowned_ms: All such times together.
        repeated: Records that were handed out more than once.
    """

    protocol: str
    verdict: str
    moved: int
    rounds: int
    gaps: int
    gap_p50_ms: int
    gap_p99_ms: int
    unowned_ms: int
    repeated: int


class _Watch:
    """Follows who owns what."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._free_since: dict[TopicPartition, int] = {}
        self._owner: dict[TopicPartition, str] = {}
        self.gaps: list[int] = []
        self.moved = 0
        self.kinds: Counter[type] = Counter()
        world.listeners.append(self._changed)
        world.observers.append(lambda event: self.kinds.update([type(event)]))

    def _changed(
        self, client: Client, change: Ownership, partitions: frozenset[TopicPartition]
    ) -> None:
        now = self._world.engine.now
        for partition in sorted(partitions):
            if change is not Ownership.ASSIGNED:
                self._free_since.setdefault(partition, now)
                continue
            since = self._free_since.pop(partition, None)
            if since is not None:
                self.gaps.append(now - since)
            before = self._owner.get(partition)
            self.moved += before is not None and before != client.name
            self._owner[partition] = client.name


def compare(scenario: Scenario, protocols: tuple[str, ...] = ()) -> list[Cost]:
    """Run a scenario under several protocols.

    Args:
        scenario: What is to happen; its own protocol and its members' assignors do not count.
        protocols: Which protocols; empty: all of them.
    """
    return [_cost(scenario, name) for name in protocols or tuple(PROTOCOLS)]


def _cost(scenario: Scenario, protocol: str) -> Cost:
    members = tuple(replace(plan, protocol="", assignors=()) for plan in scenario.members)
    world = World(replace(scenario, protocol=protocol, members=members))
    watch = _Watch(world)
    outcome = run_world(world)
    gaps = sorted(watch.gaps)
    return Cost(
        protocol=protocol,
        verdict=outcome.verdict,
        moved=watch.moved,
        rounds=watch.kinds[GenerationStarted] or watch.kinds[RebalanceStarted],
        gaps=len(gaps),
        gap_p50_ms=_quantile(gaps, 0.5),
        gap_p99_ms=_quantile(gaps, 0.99),
        unowned_ms=sum(gaps),
        repeated=outcome.repeated,
    )


def _quantile(values: list[int], share: float) -> int:
    return values[min(int(len(values) * share), len(values) - 1)] if values else 0
