"""The range assignor: of each topic, every member gets a run of neighbouring partitions (A1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kohort.group.assignors.interface import (
    Assignor,
    ClusterView,
    member_order,
    subscribed_topics,
)
from kohort.group.assignors.racks import racks_that_count
from kohort.group.subscription import Subscription
from kohort.types import TopicPartition


class RangeAssignor(Assignor):
    """Kafka's `range`: topics with the same number of partitions are split at the same places.

    Where members and replicas say in which rack they are, members first get what is in theirs, as
    long as topics that can be joined stay split alike (KIP-881).
    """

    name = "range"

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member."""
        members = member_order(subscriptions)
        names = subscribed_topics(cluster, subscriptions)
        racks = racks_that_count(cluster, subscriptions, names) or {}
        topics = []
        for name in names:
            wanting = [member for member in members if name in subscriptions[member].topics]
            rack_of = {member: subscriptions[member].rack_id for member in wanting}
            topics.append(_Topic(name, cluster.partitions[name], rack_of, racks.get(name, ())))
        _give_what_is_near(topics)
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        for topic in topics:
            topic.give_ranges()
            for member, numbers in topic.given.items():
                assignment[member] += [TopicPartition(topic.name, p) for p in sorted(numbers)]
        return assignment


class _Topic:
    """A topic being shared out.

    Attributes:
        name: Its name.
        count: Number of partitions.
        rack_of: The rack of each member that wants it, in order.
        racks: The racks of each partition, empty when not known.
        given: What each member has of it.
    """

    def __init__(
        self,
        name: str,
        count: int,
        rack_of: Mapping[str, str | None],
        racks: Sequence[frozenset[str]],
    ) -> None:
        self.name = name
        self.count = count
        self.rack_of = rack_of
        self.racks = racks
        self.given: dict[str, list[int]] = {member: [] for member in rack_of}
        self._free = dict.fromkeys(range(count))
        self._each, self._more = divmod(count, len(rack_of))

    @property
    def has_rack_choice(self) -> bool:
        """Whether some partitions are nearer to some members than others."""
        used = frozenset[str]().union(*self.racks)
        inhabited = {rack for rack in self.rack_of.values() if rack}
        return not used.isdisjoint(inhabited) and any(racks != used for racks in self.racks)

    def room(self, member: str) -> int:
        """Return how many more the member may have; the first ones have one more than others."""
        return max(0, self._each + (self._more > 0) - len(self.given[member]))

    def is_near(self, member: str, number: int) -> bool:
        """Whether the partition is in the member's rack; to one without a rack everything is."""
        rack = self.rack_of[member]
        return not rack or (number < len(self.racks) and rack in self.racks[number])

    def give(self, member: str, numbers: Sequence[int]) -> None:
        """Give partitions to a member."""
        self.given[member] += numbers
        self._more -= len(self.given[member]) > self._each
        for number in numbers:
            del self._free[number]

    def give_ranges(self, *, only_near: bool = False) -> None:
        """Give each member the first partitions that are left, as many as it has room for."""
        for member in self.rack_of:
            numbers = [
                number for number in self._free if not only_near or self.is_near(member, number)
            ]
            if some := numbers[: self.room(member)]:
                self.give(member, some)


def _give_what_is_near(topics: list[_Topic]) -> None:
    """Where racks matter, give members what is in their rack; topics that match go together."""
    if not any(topic.has_rack_choice for topic in topics):
        return
    alike: defaultdict[tuple[tuple[str, ...], int], list[_Topic]] = defaultdict(list)
    for topic in topics:
        alike[tuple(topic.rack_of), topic.count].append(topic)
    for together in alike.values():
        if len(together) > 1:
            _give_together(together)
        elif together[0].has_rack_choice:
            together[0].give_ranges(only_near=True)


def _give_together(topics: list[_Topic]) -> None:
    """Give the same partition of all topics to a member that is near to all of them."""
    for number in range(topics[0].count):
        for member in topics[0].rack_of:
            if all(topic.room(member) and topic.is_near(member, number) for topic in topics):
                for topic in topics:
                    topic.give(member, [number])
                break
