"""The range assignor: each member gets a range of consecutive partitions per topic (A1)."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice

from kohort.group.assignors.interface import Assignor, ClusterView, member_order
from kohort.group.assignors.problem import NOBODY, Wishes, with_names
from kohort.group.assignors.racks import racks_that_count
from kohort.group.assignors.server import PartitionRacks
from kohort.group.subscription import Subscription
from kohort.types import TopicPartition


class RangeAssignor(Assignor):
    """Kafka's `range`: splits topics with the same number of partitions alike.

    Where members and replicas report their racks, members first get partitions in their rack, as
    long as topics that can be joined stay split alike (KIP-881).
    """

    name = "range"

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member."""
        members = member_order(subscriptions)
        wishes = Wishes.read(cluster, [subscriptions[member].topics for member in members])
        racks = racks_that_count(cluster, subscriptions, wishes.topics)
        counts = [cluster.partitions[topic] for topic in wishes.topics]
        if racks is None:
            assigned = _ranges(counts, wishes)
        else:
            rack_of = [subscriptions[member].rack_id for member in members]
            assigned = _near_ranges(counts, wishes, racks, rack_of)
        starts = array("q", accumulate(counts, initial=0))
        return with_names(members, wishes.topics, starts, assigned, [None] * starts[-1])


def _ranges(counts: list[int], wishes: Wishes) -> array[int]:
    """Return the member of each partition if racks do not count."""
    assigned = array("i")
    known: dict[tuple[int, int], array[int]] = {}
    for shape in zip(wishes.row_of, counts, strict=True):
        if shape not in known:
            row, count = shape
            known[shape] = _split(count, wishes.rows[row])
        assigned += known[shape]
    return assigned


def _split(count: int, members: array[int]) -> array[int]:
    """Return each member's range; the first members get one partition more if some remain."""
    each, more = divmod(count, len(members))
    runs = array("i")
    for index, member in enumerate(members):
        runs += array("i", (member,)) * (each + (index < more))
    return runs


def _near_ranges(
    counts: list[int], wishes: Wishes, racks: PartitionRacks, rack_of: list[str | None]
) -> array[int]:
    """Return the member of each partition if racks count."""
    topics = [
        _Topic(count, {m: rack_of[m] for m in wishes.rows[row]}, racks.get(name, ()))
        for name, count, row in zip(wishes.topics, counts, wishes.row_of, strict=True)
    ]
    _give_what_is_near(topics)
    assigned = array("i")
    for topic in topics:
        topic.give_ranges()
        assigned += topic.assigned
    return assigned


class _Topic:
    """A topic being assigned.

    Attributes:
        count: Number of partitions.
        rack_of: The rack of each subscribed member, in order.
        racks: The racks of each partition, empty if unknown.
        assigned: The member of each partition, NOBODY for unassigned ones.
    """

    def __init__(
        self, count: int, rack_of: Mapping[int, str | None], racks: Sequence[frozenset[str]]
    ) -> None:
        self.count = count
        self.rack_of = rack_of
        self.racks = racks
        self.assigned = array("i", (NOBODY,)) * count
        self._has = dict.fromkeys(rack_of, 0)
        self._each, self._more = divmod(count, len(rack_of))

    @property
    def has_rack_choice(self) -> bool:
        """Return whether racks distinguish the members for some partitions."""
        used = frozenset[str]().union(*self.racks)
        inhabited = {rack for rack in self.rack_of.values() if rack}
        return not used.isdisjoint(inhabited) and any(racks != used for racks in self.racks)

    def room(self, member: int) -> int:
        """Return how many more partitions the member may get."""
        return max(0, self._each + (self._more > 0) - self._has[member])

    def is_near(self, rack: str | None, number: int) -> bool:
        """Return whether the partition is in the member's rack, True for a member without one."""
        return not rack or (number < len(self.racks) and rack in self.racks[number])

    def give(self, member: int, numbers: Sequence[int]) -> None:
        """Give partitions to a member."""
        for number in numbers:
            self.assigned[number] = member
        self._has[member] += len(numbers)
        self._more -= self._has[member] > self._each

    def give_ranges(self, *, only_near: bool = False) -> None:
        """Give each member the first remaining partitions, as many as it has room for."""
        left: dict[str | None, Iterator[int]] = {}
        for member, rack in self.rack_of.items():
            where = rack if only_near else None
            # Each member of a rack continues after the previous one's partitions.
            numbers = left.setdefault(where, self._left_near(where))
            if some := list(islice(numbers, self.room(member))):
                self.give(member, some)

    def _left_near(self, rack: str | None) -> Iterator[int]:
        return (
            number
            for number in range(self.count)
            if self.assigned[number] == NOBODY and self.is_near(rack, number)
        )


def _give_what_is_near(topics: list[_Topic]) -> None:
    """Give members partitions in their rack; topics that can be joined stay split alike."""
    if not any(topic.has_rack_choice for topic in topics):
        return
    alike: defaultdict[tuple[tuple[int, ...], int], list[_Topic]] = defaultdict(list)
    for topic in topics:
        alike[tuple(topic.rack_of), topic.count].append(topic)
    for together in alike.values():
        if len(together) > 1:
            _give_together(together)
        elif together[0].has_rack_choice:
            together[0].give_ranges(only_near=True)


def _give_together(topics: list[_Topic]) -> None:
    """Give the same partition of all topics to a member in the rack of all of them."""
    remaining = dict(topics[0].rack_of)
    for number in range(topics[0].count):
        for member, rack in remaining.items():
            if all(topic.room(member) and topic.is_near(rack, number) for topic in topics):
                for topic in topics:
                    topic.give(member, [number])
                if not topics[0].room(member):
                    del remaining[member]
                break
