"""The optimal assignors' problem as arrays: possible and present owners of partitions.

Members, topics and partitions are numbers here. Members are numbered in Kafka's order, topics by
name, and partitions by topic and then by number, so the result does not depend on the order of a
dictionary. Partitions with the same possible members and the same racks form a class; the solver
handles classes, never single partitions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise, repeat

from msgspec import Struct

from kohort.group.assignors._border import (
    add_pairs,
    count_owned,
    place,
    read_owned,
    read_wanted,
    turned,
)
from kohort.group.assignors._flow import Flow
from kohort.group.assignors.interface import ClusterView, java_sorted, member_order
from kohort.group.assignors.ownership import settle_claims
from kohort.group.assignors.racks import racks_that_count
from kohort.group.assignors.server import PartitionRacks
from kohort.group.subscription import Subscription
from kohort.types import TopicPartition

NOBODY = -1

# The number of members whose claims are read in one step, which blocks a broker's other threads.
_AT_ONCE = 50


class Classes(Struct, frozen=True, kw_only=True):
    """The partitions by class, and the possible members of each class.

    Attributes:
        of: The class of each partition.
        size: Number of partitions of each class.
        row: A number for each class; classes with the same possible members share it.
        start: Where each class's edges start, then where the last ones end.
        member: The member of each edge; a class has an edge for each member that may have it.
        far: For each edge, whether the member's rack has no replica; empty if racks do not count.
    """

    of: array[int]
    size: array[int]
    row: array[int]
    start: array[int]
    member: array[int]
    far: array[int]


class Problem(Struct, frozen=True, kw_only=True):
    """Partitions to assign.

    Attributes:
        members: Member ids.
        topics: Existing topics that some member wants.
        starts: Where each topic's partitions start, then where the last ones end.
        classes: Which members may get which partitions.
        owner: For each partition, the member that may keep it, or NOBODY.
        claimed: For each partition, whether any member claims it.
        pairs: For each partition, its `TopicPartition` from a claim, else None; reusing them
            avoids creating a million objects.
    """

    members: tuple[str, ...]
    topics: tuple[str, ...]
    starts: array[int]
    classes: Classes
    owner: array[int]
    claimed: array[int]
    pairs: list[TopicPartition | None]


def build(
    cluster: ClusterView,
    subscriptions: Mapping[str, Subscription],
) -> Problem:
    """Build the problem from the subscriptions.

    Args:
        cluster: The topics that exist, and their racks if these count.
        subscriptions: The topics and claims of each member, by member id.
    """
    members = tuple(member_order(subscriptions))
    wishes = Wishes.read(cluster, [subscriptions[member].topics for member in members])
    sizes = [cluster.partitions[topic] for topic in wishes.topics]
    racks = racks_that_count(cluster, subscriptions, wishes.topics)
    if racks is None:
        classes = _classes(sizes, wishes)
    else:
        near = _Racks(wishes.topics, racks, [subscriptions[m].rack_id for m in members])
        classes = near.classes(sizes, wishes)
    starts = array("q", accumulate(sizes, initial=0))
    owner, claimed, pairs = _owners(subscriptions, members, wishes, starts)
    return Problem(
        members=members,
        topics=wishes.topics,
        starts=starts,
        classes=classes,
        owner=owner,
        claimed=claimed,
        pairs=pairs,
    )


def solve(problem: Problem) -> array[int]:
    """Return the member that gets each partition: even loads first, then few moves, then racks."""
    count, classes = len(problem.members), problem.classes
    if not classes.size:
        return problem.owner
    owned = count_owned(
        problem.owner, classes.of, classes.row, classes.start, classes.member, count
    )
    flow = Flow(count, classes.size, classes.start, classes.member, owned, classes.far)
    carried = flow.solve()
    return place(
        problem.owner,
        classes.of,
        classes.row,
        classes.start,
        classes.member,
        owned,
        carried,
        count,
    )


def by_member(problem: Problem, assigned: array[int]) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each member by name, in order.

    Args:
        problem: The problem.
        assigned: For each partition the member that gets it, or NOBODY.
    """
    members, topics, starts = problem.members, problem.topics, problem.starts
    return with_names(members, topics, starts, assigned, problem.pairs)


def with_names(
    members: Sequence[str],
    topics: Sequence[str],
    starts: array[int],
    assigned: array[int],
    pairs: list[TopicPartition | None],
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each member by name, in order.

    Args:
        members: Member ids.
        topics: Names of the topics.
        starts: Where the partitions of each topic start, and where the last one's end.
        assigned: For each partition the member that gets it, or NOBODY.
        pairs: For each partition its name if there is one already, else None.
    """
    lists: list[list[TopicPartition]] = [[] for _ in members]
    integers: list[int] = []
    for topic, (first, last) in zip(topics, pairwise(starts), strict=True):
        integers += range(len(integers), last - first)
        add_pairs(lists, assigned, topic, first, integers[: last - first], pairs)
    return dict(zip(members, lists, strict=True))


class Wishes(Struct, frozen=True, kw_only=True):
    """The topics that members subscribe to. Members with the same topics share one wish.

    Attributes:
        topics: Existing topics that some member wants.
        numbers: Their numbers by name.
        of_member: The wish of each member.
        start: Where each wish's topics start, then where the last ones end.
        topic: The topics of each wish.
        rows: The distinct sets of members that want a topic.
        row_of: For each topic, its set.
    """

    topics: tuple[str, ...]
    numbers: dict[str, int]
    of_member: array[int]
    start: array[int]
    topic: array[int]
    rows: list[array[int]]
    row_of: list[int]

    @classmethod
    def read(cls, cluster: ClusterView, wanted: list[frozenset[str]]) -> Wishes:
        """Return the members' wishes."""
        topics = tuple(java_sorted(name for name, count in cluster.partitions.items() if count))
        numbers = {topic: number for number, topic in enumerate(topics)}
        wishes, of_member = _alike(wanted)
        start, topic = read_wanted(wishes, numbers)
        ends, wish = turned(_one_each(len(wishes)), start, topic, len(topics))
        rows: dict[bytes, int] = {}
        row_of = [
            rows.setdefault(wish[first:last].tobytes(), len(rows)) for first, last in pairwise(ends)
        ]
        if b"" in rows:
            # Some topics have no subscriber: repeat without them.
            counts = {
                name: cluster.partitions[name]
                for name, row in zip(topics, row_of, strict=True)
                if row != rows[b""]
            }
            return cls.read(ClusterView(counts), wanted)
        return cls(
            topics=topics,
            numbers=numbers,
            of_member=of_member,
            start=start,
            topic=topic,
            rows=_with_members([array("i", row) for row in rows], len(wishes), of_member),
            row_of=row_of,
        )


def _alike(wanted: list[frozenset[str]]) -> tuple[list[frozenset[str]], array[int]]:
    """Return the distinct wishes, and each member's wish."""
    wishes: list[frozenset[str]] = []
    by_hash: dict[int, int] = {}
    of_member = array("i")
    # Applications that call an assignor directly may pass another kind of collection.
    for topics in map(frozenset, wanted):
        known = by_hash.setdefault(hash(topics), len(wishes))
        # Keep `topics` on the left: it is iterated in order, with look-ups in the cached set.
        if known == len(wishes) or topics != wishes[known]:
            known = len(wishes)
            wishes.append(topics)
        of_member.append(known)
    return wishes, of_member


def _with_members(rows: list[array[int]], wishes: int, of_member: array[int]) -> list[array[int]]:
    """Expand sets of wishes into sets of members."""
    start = array("i", accumulate(map(len, rows), initial=0))
    of_wish_start, row = turned(_one_each(len(rows)), start, _joined(rows), wishes)
    ends, members = turned(of_member, of_wish_start, row, len(rows))
    return [members[first:last] for first, last in pairwise(ends)]


def _one_each(count: int) -> array[int]:
    """Return the argument of `turned` if no two members share a list."""
    return array("i", range(count))


def _joined(arrays: Iterable[array[int]]) -> array[int]:
    joined = array("i")
    for each in arrays:
        joined += each
    return joined


def _classes(sizes: list[int], wishes: Wishes) -> Classes:
    """Return the classes if racks do not count: one for each set of members."""
    size = array("i", bytes(4 * len(wishes.rows)))
    of = array("i")
    for row, count in zip(wishes.row_of, sizes, strict=True):
        size[row] += count
        of += array("i", (row,)) * count
    return _with_edges(of, size, wishes.rows, range(len(wishes.rows)), array("b"))


def _with_edges(
    of: array[int],
    size: array[int],
    rows: list[array[int]],
    row: Sequence[int],
    far: array[int],
) -> Classes:
    return Classes(
        of=of,
        size=size,
        row=array("i", row),
        start=array("i", accumulate((len(rows[number]) for number in row), initial=0)),
        member=_joined(rows[number] for number in row),
        far=far,
    )


class _Racks:
    """Splits classes by rack; only racks with members count."""

    def __init__(
        self, topics: tuple[str, ...], racks: PartitionRacks, rack_of_member: list[str | None]
    ) -> None:
        self.topics = topics
        self.racks = racks
        self.rack_of_member = rack_of_member
        self.inhabited = frozenset(rack for rack in rack_of_member if rack)

    def classes(self, sizes: list[int], wishes: Wishes) -> Classes:
        """Return the classes: partitions for the same members, in the same racks."""
        numbers: dict[tuple[int, frozenset[str]], int] = {}
        of = array("i")
        for topic, count, row in zip(self.topics, sizes, wishes.row_of, strict=True):
            for known in self.racks_of(topic, count):
                of.append(numbers.setdefault((row, known & self.inhabited), len(numbers)))
        size = array("i", bytes(4 * len(numbers)))
        for number in of:
            size[number] += 1
        far = array("b")
        for row, near in numbers:
            far.extend(self.far(wishes.rows[row], near))
        return _with_edges(of, size, wishes.rows, [row for row, _ in numbers], far)

    def racks_of(self, topic: str, count: int) -> list[frozenset[str]]:
        """Return the racks of each partition, empty if unknown."""
        known = list(self.racks.get(topic, ()))[:count]
        return [*known, *repeat(frozenset[str](), count - len(known))]

    def far(self, row: array[int], near: frozenset[str]) -> list[bool]:
        """Return, for each member, whether it is outside all of the racks."""
        return [self.rack_of_member[member] not in near for member in row]


def _owners(
    subscriptions: Mapping[str, Subscription],
    members: tuple[str, ...],
    wishes: Wishes,
    starts: array[int],
) -> tuple[array[int], array[int], list[TopicPartition | None]]:
    """Return the owner of each partition, whether it is claimed, and its name in the claim."""
    pairs: list[TopicPartition | None] = [None] * starts[-1]
    read = partial(_read_owned, wishes=wishes, starts=starts, pairs=pairs)
    owner, claimed, is_settled = read([subscriptions[member].owned for member in members])
    if not is_settled:
        # Two claims to one partition are rare; KIP-792 defines which one wins.
        settled = settle_claims(subscriptions)
        owner, _, _ = read([settled[member] for member in members])
    return owner, claimed, pairs


def _read_owned(
    owned: list[frozenset[TopicPartition]],
    *,
    wishes: Wishes,
    starts: array[int],
    pairs: list[TopicPartition | None],
) -> tuple[array[int], array[int], bool]:
    """Return each partition's claimant, whether it is claimed, and whether claims are unique."""
    owner = array("i", (NOBODY,)) * starts[-1]
    claimed = array("b", bytes(starts[-1]))
    wanted_by = array("i", (NOBODY,)) * len(wishes.topics)
    twice = False
    for first in range(0, len(owned), _AT_ONCE):
        twice |= read_owned(
            first,
            owned[first : first + _AT_ONCE],
            wishes.of_member,
            wishes.start,
            wishes.topic,
            wishes.numbers,
            starts,
            wanted_by,
            owner,
            claimed,
            pairs,
        )
    return owner, claimed, not twice
