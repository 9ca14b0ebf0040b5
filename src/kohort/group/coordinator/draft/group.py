"""A draft group while it lives: consumers, who waits for an answer, which state. All values.

What each consumer owns is not here: it is log state, written with the record that makes the group
steady.
"""

from __future__ import annotations

from immutables import Map

from kohort.group.coordinator.group import Group, Parked
from kohort.group.machine import State
from kohort.values import dataclass, replace


class DraftState(State):
    """The states of a group, by the design's names; the first one stands for no group at all."""

    NONE = "None"
    PREPARE_FOR_REBALANCE = "PrepareForRebalance"
    REBALANCING = "Rebalancing"
    STEADY = "Steady"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A consumer of a draft group.

    Attributes:
        consumer_id: Id that the coordinator gave it.
        client_id: From the header of its join.
        host: Where it runs, as it says itself; part of its id.
        session_timeout_ms: How long it may be silent.
        heartbeat_frequency: How many heartbeats it sends in that time.
        topics: What it wants to read, in order.
    """

    consumer_id: str
    client_id: str
    host: str
    session_timeout_ms: int
    heartbeat_frequency: int
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Who joined without an id, and gets one when the group rebalances."""

    consumer: Consumer
    parked: Parked


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftGroup(Group):
    """A draft group.

    Attributes:
        state: Its state.
        next_sequence: Number in the next consumer id; never used twice.
        consumers: Consumers by their id.
        newcomers: Who waits for an id, in the order in which they came.
        joining: Consumers whose JoinGroup is parked.
        job: Number of the assignment that is being made, counted within the generation.
    """

    state: DraftState = DraftState.NONE
    next_sequence: int = 1
    consumers: Map[str, Consumer] = Map()
    newcomers: tuple[Newcomer, ...] = ()
    joining: Map[str, Parked] = Map()
    job: int = 0

    @property
    def all_joined(self) -> bool:
        """Whether every consumer of the present generation has joined again."""
        return len(self.joining) == len(self.consumers)

    @property
    def longest_session_ms(self) -> int:
        """The longest session timeout of the consumers."""
        return max((each.session_timeout_ms for each in self.consumers.values()), default=0)

    @property
    def topics(self) -> frozenset[str]:
        """All topics that somebody wants to read."""
        return frozenset(topic for each in self.consumers.values() for topic in each.topics)

    def sorted_consumers(self) -> list[Consumer]:
        """Return the consumers by id: the order of a map differs from process to process."""
        return [consumer for _, consumer in sorted(self.consumers.items())]

    def with_consumer(self, consumer: Consumer) -> DraftGroup:
        """Add a consumer, or put one with the same id in its place."""
        return replace(self, consumers=self.consumers.set(consumer.consumer_id, consumer))

    def without_consumer(self, consumer_id: str) -> DraftGroup:
        """Remove a consumer."""
        joining = self.joining
        if consumer_id in joining:
            joining = joining.delete(consumer_id)
        return replace(self, consumers=self.consumers.delete(consumer_id), joining=joining)

    def park(self, consumer_id: str, parked: Parked) -> DraftGroup:
        """Keep a consumer's join until all have joined."""
        return replace(self, joining=self.joining.set(consumer_id, parked))

    def with_ids(self) -> DraftGroup:
        """Give every newcomer its id, `<group>-<host>-<sequence>` (D9)."""
        group = self
        for number, newcomer in enumerate(self.newcomers, self.next_sequence):
            consumer_id = f"{self.group_id}-{newcomer.consumer.host}-{number}"
            group = group.with_consumer(replace(newcomer.consumer, consumer_id=consumer_id))
            group = group.park(consumer_id, newcomer.parked)
        sequence = self.next_sequence + len(self.newcomers)
        return replace(group, newcomers=(), next_sequence=sequence)
