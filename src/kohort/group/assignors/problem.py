"""The optimal assignors' problem as arrays: who may have which partitions and who owns them.

Members, topics and partitions are numbers here. Members are numbered in Kafka's order, topics by
name, and the partitions of a topic follow those of the topic before it, so nothing depends on the
order of a dictionary. Partitions that are alike in all that counts, who may have them and in which
racks they are, make a class; the solver never looks at a single one.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat

from kohort.group.assignors import _border
from kohort.group.assignors._flow import Flow
from kohort.group.assignors.interface import ClusterView, member_order, subscribed_topics
from kohort.group.assignors.ownership import settle_claims
from kohort.group.assignors.racks import racks_that_count
from kohort.group.assignors.server import PartitionRacks
from kohort.group.subscription import Subscription
from kohort.types import TopicPartition

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """The partitions by class, and who may have each class.

    Attributes:
        of: The class of each partition.
        size: Number of partitions of each class.
        row: For each class the same number as others that go to the same members.
        start: Where the edges of each class start, and where the last one's end.
        member: The member of each edge; a class has an edge for each member that may have it.
        far: For each edge whether the member's rack has no replica; empty if racks do not count.
    """

    of: array[int]
    size: array[int]
    row: array[int]
    start: array[int]
    member: array[int]
    far: array[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Partitions to be shared out.

    Attributes:
        members: Member ids.
        topics: Topics that exist and that somebody wants.
        starts: Where the partitions of each topic start, and where the last one's end.
        classes: Who may have what.
        owner: For each partition the member that may keep it, or NOBODY.
        claimed: For each partition whether any member says it owns it.
    """

    members: tuple[str, ...]
    topics: tuple[str, ...]
    starts: array[int]
    classes: Classes
    owner: array[int]
    claimed: array[int]


def build(
    cluster: ClusterView,
    subscriptions: Mapping[str, Subscription],
) -> Problem:
    """Return the problem that the subscriptions pose.

    Args:
        cluster: The topics that exist, and their racks if these are to count.
        subscriptions: What each member wants and says it owns, by member id.
    """
    members = tuple(member_order(subscriptions))
    topics = tuple(subscribed_topics(cluster, subscriptions))
    sizes = [cluster.partitions[topic] for topic in topics]
    starts = array("q", accumulate(sizes, initial=0))
    numbers = {topic: number for number, topic in enumerate(topics)}
    wanted = _wanted(numbers, [subscriptions[member].topics for member in members])
    rows, row_of_topic = _rows(wanted, len(topics))
    racks = racks_that_count(cluster, subscriptions, topics)
    if racks is None:
        classes = _classes(sizes, rows, row_of_topic)
    else:
        near = _Racks(topics, racks, [subscriptions[member].rack_id for member in members])
        classes = near.classes(sizes, rows, row_of_topic)
    owner, claimed = _owners(subscriptions, members, wanted, numbers, starts)
    return Problem(
        members=members,
        topics=topics,
        starts=starts,
        classes=classes,
        owner=owner,
        claimed=claimed,
    )


def solve(problem: Problem) -> array[int]:
    """Return the member that gets each partition: even loads first, then few moves, then racks."""
    count, classes = len(problem.members), problem.classes
    if not classes.size:
        return problem.owner
    owned = _border.count_owned(
        problem.owner, classes.of, classes.row, classes.start, classes.member, count
    )
    flow = Flow(count, classes.size, classes.start, classes.member, owned, classes.far)
    carried = flow.solve()
    return _border.place(
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
    lists = _border.to_lists(assigned, problem.topics, problem.starts, len(problem.members))
    return dict(zip(problem.members, lists, strict=True))


def _wanted(numbers: dict[str, int], wanted: list[frozenset[str]]) -> list[array[int]]:
    """Return the topics of each member as numbers; equal subscriptions are one array."""
    existing = numbers.keys()
    seen: dict[frozenset[str], array[int]] = {}
    for topics in wanted:
        if topics not in seen:
            seen[topics] = array("i", sorted(map(numbers.__getitem__, topics & existing)))
    return [seen[topics] for topics in wanted]


def _rows(wanted: list[array[int]], topics: int) -> tuple[list[array[int]], list[int]]:
    """Return the different sets of members that want a topic, and for each topic which it is."""
    members: list[list[int]] = [[] for _ in range(topics)]
    by_wish: dict[int, tuple[array[int], list[int]]] = {}
    for member, wish in enumerate(wanted):
        by_wish.setdefault(id(wish), (wish, []))[1].append(member)
    for wish, those in by_wish.values():
        for topic in wish:
            members[topic] += those
    rows: dict[bytes, int] = {}
    row_of_topic = []
    for those in members:
        those.sort()
        row_of_topic.append(rows.setdefault(array("i", those).tobytes(), len(rows)))
    return [array("i", row) for row in rows], row_of_topic


def _classes(sizes: list[int], rows: list[array[int]], row_of_topic: list[int]) -> Classes:
    """Return the classes when racks do not count: one for each set of members."""
    size = array("i", bytes(4 * len(rows)))
    of = array("i")
    for row, count in zip(row_of_topic, sizes, strict=True):
        size[row] += count
        of.frombytes(array("i", (row,)).tobytes() * count)
    return _with_edges(of, size, rows, range(len(rows)), array("b"))


def _with_edges(
    of: array[int],
    size: array[int],
    rows: list[array[int]],
    row: Sequence[int],
    far: array[int],
) -> Classes:
    member = array("i")
    for number in row:
        member += rows[number]
    return Classes(
        of=of,
        size=size,
        row=array("i", row),
        start=array("i", accumulate((len(rows[number]) for number in row), initial=0)),
        member=member,
        far=far,
    )


class _Racks:
    """Splits classes by the racks that count, those in which there are members."""

    def __init__(
        self, topics: tuple[str, ...], racks: PartitionRacks, rack_of_member: list[str | None]
    ) -> None:
        self.topics = topics
        self.racks = racks
        self.rack_of_member = rack_of_member
        self.inhabited = frozenset(rack for rack in rack_of_member if rack)

    def classes(self, sizes: list[int], rows: list[array[int]], row_of_topic: list[int]) -> Classes:
        """Return the classes: partitions for the same members, in the same racks."""
        numbers: dict[tuple[int, frozenset[str]], int] = {}
        of = array("i")
        for topic, count, row in zip(self.topics, sizes, row_of_topic, strict=True):
            for known in self.racks_of(topic, count):
                of.append(numbers.setdefault((row, known & self.inhabited), len(numbers)))
        size = array("i", bytes(4 * len(numbers)))
        for number in of:
            size[number] += 1
        far = array("b", chain.from_iterable(self.far(rows[row], near) for row, near in numbers))
        return _with_edges(of, size, rows, [row for row, _ in numbers], far)

    def racks_of(self, topic: str, count: int) -> list[frozenset[str]]:
        """Return the racks of each partition, none where they are not known."""
        known = list(self.racks.get(topic, ()))[:count]
        return [*known, *repeat(frozenset[str](), count - len(known))]

    def far(self, row: array[int], near: frozenset[str]) -> list[bool]:
        """Return for each member whether it is in none of the racks."""
        return [self.rack_of_member[member] not in near for member in row]


def _owners(
    subscriptions: Mapping[str, Subscription],
    members: tuple[str, ...],
    wanted: list[array[int]],
    numbers: dict[str, int],
    starts: array[int],
) -> tuple[array[int], array[int]]:
    """Return the owner of each partition, and whether anybody claims it."""
    owned = [subscriptions[member].owned for member in members]
    owner, claimed = _nobody(starts[-1])
    if _border.read_owned(owned, wanted, numbers, starts, owner, claimed):
        # Two claims to one partition are rare, and rules decide between them (KIP-792).
        settled = settle_claims(subscriptions)
        owner, ignored = _nobody(starts[-1])
        owned = [settled[member] for member in members]
        _border.read_owned(owned, wanted, numbers, starts, owner, ignored)
    return owner, claimed


def _nobody(partitions: int) -> tuple[array[int], array[int]]:
    return array("i", b"\xff" * 4 * partitions), array("b", bytes(partitions))
