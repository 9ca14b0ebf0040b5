"""Random groups: subscriptions, outdated and conflicting claims, owners that have left."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kohort.group.assignors import ClusterView, RackedClusterView, Subscription
from kohort.group.assignors.ownership import settle_claims
from kohort.types import TopicPartition
from kohort.values import replace

RACKS = ("east", "north", "west")


@dataclass(frozen=True)
class Case:
    """A cluster and the members of a group."""

    cluster: ClusterView
    subscriptions: dict[str, Subscription]

    @property
    def partitions(self) -> list[TopicPartition]:
        """Return all partitions to assign."""
        wanted = frozenset[str]().union(*(entry.topics for entry in self.subscriptions.values()))
        return [
            TopicPartition(topic, number)
            for topic, count in sorted(self.cluster.partitions.items())
            if topic in wanted
            for number in range(count)
        ]

    @property
    def owner(self) -> dict[TopicPartition, str]:
        """Return, for each partition, the member that may keep it."""
        return {
            partition: member
            for member, owned in settle_claims(self.subscriptions).items()
            for partition in owned
        }

    def is_near(self, partition: TopicPartition, member: str) -> bool:
        """Whether the member's rack has a replica."""
        if not isinstance(self.cluster, RackedClusterView):
            return True
        racks = self.cluster.racks[partition.topic][partition.partition]
        return self.subscriptions[member].rack_id in racks


def random_case(rng: random.Random, *, racks: bool = False) -> Case:
    """Return a small group: at most 6 members, 5 topics and 24 partitions."""
    topics = [f"t{n}" for n in range(rng.randint(1, 5))]
    sizes: dict[str, int] = dict.fromkeys(topics, 0)
    for _ in range(rng.randint(1, 24)):
        sizes[rng.choice(topics)] += 1
    members = [f"m{n}" for n in range(rng.randint(1, 6))]
    likely = rng.choice([0.2, 0.5, 0.8, 1.0])
    wanted = {m: frozenset(t for t in topics if rng.random() < likely) for m in members}
    claims = random_claims(rng, [*members, "gone", "also gone"], sizes)
    subscriptions = {
        member: Subscription(
            topics=wanted[member] | ({"unheard-of"} if rng.random() < 0.1 else frozenset()),
            owned=claims[member],
            generation=rng.choice([-1, 5, 6, 6, 7, 7, 7]),
            rack_id=rng.choice([None, *RACKS]) if racks else None,
            group_instance_id=f"i{rng.random()}" if rng.random() < 0.2 else None,
        )
        for member in members
    }
    return Case(_cluster(rng, sizes, racks), subscriptions)


def large_case(rng: random.Random, members: int, topics: int, partitions: int) -> Case:
    """Return a group with a few kinds of members, so that loads differ between its parts."""
    names = [f"t{n}" for n in range(topics)]
    sizes = {name: rng.randint(1, 2 * partitions // topics) for name in names}
    kinds = [rng.sample(names, rng.randint(1, topics)) for _ in range(rng.randint(1, members))]
    subscriptions = {
        f"m{n}": Subscription(topics=frozenset(rng.choice(kinds))) for n in range(members)
    }
    case = Case(ClusterView(sizes), subscriptions)
    for partition in case.partitions:
        owner = rng.choice(["gone", *subscriptions])
        if owner in subscriptions and rng.random() < 0.8:
            entry = subscriptions[owner]
            subscriptions[owner] = replace(entry, owned=entry.owned | {partition}, generation=1)
    return case


def random_claims(
    rng: random.Random, owners: list[str], sizes: Mapping[str, int]
) -> dict[str, frozenset[TopicPartition]]:
    """Return ownership claims, usually one per partition, with preferred owners."""
    claims: dict[str, set[TopicPartition]] = {owner: set() for owner in owners}
    weights = [rng.choice([0.1, 1, 1, 4]) for _ in owners]
    owned, twice = rng.choice([0, 0.5, 0.9, 1]), rng.choice([0, 0, 0.2])
    for topic, count in sizes.items():
        # One more than exists: a topic may have been deleted and recreated.
        for number in range(count + 1):
            for probability in (owned, twice):
                if rng.random() < probability:
                    owner = rng.choices(owners, weights)[0]
                    claims[owner].add(TopicPartition(topic, number))
    return {owner: frozenset(partitions) for owner, partitions in claims.items()}


def _cluster(rng: random.Random, sizes: Mapping[str, int], racks: bool) -> ClusterView:
    if not racks:
        return ClusterView(sizes)
    where = {
        topic: [frozenset(rng.sample(RACKS, rng.randint(0, 2))) for _ in range(count)]
        for topic, count in sizes.items()
    }
    return RackedClusterView(sizes, where)


@dataclass(frozen=True)
class Score:
    """The quality of an assignment, by the goals in their order; less is better."""

    loads: tuple[int, ...]
    moved: int
    far: int


def score(case: Case, assignment: Mapping[str, Iterable[TopicPartition]]) -> Score:
    """Check that an assignment is valid (A10) and return its score."""
    lists = {member: list(partitions) for member, partitions in assignment.items()}
    given = {partition: member for member, owned in lists.items() for partition in owned}
    assert lists.keys() == case.subscriptions.keys()
    assert sum(map(len, lists.values())) == len(given)
    assert sorted(given) == sorted(case.partitions)
    for partition, member in given.items():
        assert partition.topic in case.subscriptions[member].topics
    owner = case.owner
    return Score(
        loads=tuple(sorted(map(len, lists.values()), reverse=True)),
        moved=sum(owner.get(partition) != member for partition, member in given.items()),
        far=sum(not case.is_near(partition, member) for partition, member in given.items()),
    )


def loads_of(assignment: Mapping[str, Iterable[TopicPartition]]) -> Counter[str]:
    """Return the number of partitions of each member."""
    return Counter({member: len(list(owned)) for member, owned in assignment.items()})


Assign = Callable[[ClusterView, Mapping[str, Subscription]], Mapping[str, Iterable[TopicPartition]]]


def settled(
    case: Case, assign: Assign, most_rounds: int = 5
) -> dict[str, frozenset[TopicPartition]]:
    """Rebalance until all partitions are assigned and none moves, as a group does (A14)."""
    subscriptions = dict(case.subscriptions)
    for generation in range(100, 100 + most_rounds):
        given = {m: frozenset(owned) for m, owned in assign(case.cluster, subscriptions).items()}
        check_nothing_moves_at_once(subscriptions, given)
        if all(given[member] == subscriptions[member].owned for member in given):
            return given
        subscriptions = {
            member: replace(entry, owned=given[member], generation=generation)
            for member, entry in subscriptions.items()
        }
    raise AssertionError(f"not settled after {most_rounds} rebalances: {case}")


def check_nothing_moves_at_once(
    subscriptions: Mapping[str, Subscription], given: Mapping[str, frozenset[TopicPartition]]
) -> None:
    """A14: no member gets a partition in the round that takes it from another member."""
    added = {p for member, owned in given.items() for p in owned - subscriptions[member].owned}
    revoked = {p for member, owned in given.items() for p in subscriptions[member].owned - owned}
    assert not added & revoked
