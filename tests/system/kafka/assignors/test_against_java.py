"""Our assignors beside Kafka's own, which run in Java on the same random groups."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from kohort.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    ServerRangeAssignor,
    StickyAssignor,
    Subscription,
    UniformAssignor,
)
from kohort.group.assignors.sticky import encode_user_data
from kohort.types import TopicPartition
from kohort.values import replace
from tests.group.assignors.cases import Case, large_case, random_case, score, settled
from tests.system.kafka.assignors.driver import JavaAssignors

GROUPS = 1000


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaAssignors]:
    """Kafka's assignors."""
    with JavaAssignors(tmp_path_factory.mktemp("classes")) as process:
        yield process


def sets(assignment: Mapping[str, object]) -> dict[str, set[TopicPartition]]:
    return {member: set(owned) for member, owned in assignment.items()}  # type: ignore[call-overload]  # each is a collection of partitions


@pytest.mark.parametrize("racks", [False, True], ids=["without racks", "with racks"])
@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()], ids=lambda a: a.name)
def test_a1_a2_a16_range_and_roundrobin_are_kafkas(
    java: JavaAssignors, assignor: Assignor, racks: bool
) -> None:
    rng = random.Random(1)
    for _ in range(GROUPS):
        case = random_case(rng, racks=racks)
        ours = sets(assignor.assign(case.cluster, case.subscriptions))
        assert ours == java.assign(assignor.name, case.cluster, case.subscriptions), case


def server_case(rng: random.Random) -> tuple[Case, dict[str, MemberSubscription]]:
    """A group as a coordinator has it: each partition is in one target assignment at most."""
    case = random_case(rng)
    claimed: set[TopicPartition] = set()
    subscriptions: dict[str, Subscription] = {}
    members = {}
    for member, entry in case.subscriptions.items():
        owned = {p for p in entry.owned if p.partition < case.cluster.partitions[p.topic]} - claimed
        claimed |= owned
        topics = frozenset(topic for topic in entry.topics if case.cluster.partitions.get(topic))
        subscriptions[member] = replace(entry, owned=frozenset(owned), topics=topics, generation=0)
        members[member] = MemberSubscription(
            topics=topics, owned=frozenset(owned), instance_id=entry.group_instance_id
        )
    return Case(case.cluster, subscriptions), members


def test_a5_the_servers_range_is_kafkas(java: JavaAssignors) -> None:
    rng = random.Random(5)
    for _ in range(GROUPS):
        case, members = server_case(rng)
        ours = sets(ServerRangeAssignor().assign(members, case.cluster.partitions))
        assert ours == java.assign("server-range", case.cluster, case.subscriptions), case


def test_a4_a17_uniform_is_never_behind_kafkas(java: JavaAssignors) -> None:
    """As even at least, and if it is as even it moves no more; with equal subscriptions always."""
    rng = random.Random(4)
    ahead = 0
    for _ in range(GROUPS):
        case, members = server_case(rng)
        ours = score(case, UniformAssignor().assign(members, case.cluster.partitions))
        theirs = score(case, java.assign("server-uniform", case.cluster, case.subscriptions))
        assert (ours.loads, ours.moved) <= (theirs.loads, theirs.moved), case
        ahead += (ours.loads, ours.moved) < (theirs.loads, theirs.moved)
    assert ahead > 0


def sane_case(rng: random.Random) -> Case:
    """A group without what Kafka 4.3's sticky assignors do not stand.

    They give out partitions that do not exist, or raise, when a member claims partitions beyond the
    present size of a topic (one that was recreated, smaller); they may leave partitions with a
    member that does not subscribe to their topic any more; and some subscriptions to topics that do
    not exist make them raise.
    """
    case = random_case(rng)
    sizes = case.cluster.partitions
    exist = frozenset(topic for topic, count in sizes.items() if count)
    subscriptions = {}
    for member, entry in case.subscriptions.items():
        topics = (entry.topics & exist) or exist
        owned = {p for p in entry.owned if p.topic in topics and p.partition < sizes[p.topic]}
        subscriptions[member] = replace(entry, topics=topics, owned=frozenset(owned))
    return Case(case.cluster, subscriptions)


def as_user_data(entry: Subscription) -> Subscription:
    data = encode_user_data(entry.owned, entry.generation)
    return replace(entry, owned=frozenset(), user_data=data)


def test_a3_sticky_is_never_behind_kafkas(java: JavaAssignors) -> None:
    """As even at least, and if it is as even it moves no more."""
    rng = random.Random(3)
    ahead = 0
    for _ in range(GROUPS):
        case = sane_case(rng)
        told = {member: as_user_data(entry) for member, entry in case.subscriptions.items()}
        ours = score(case, StickyAssignor().assign(case.cluster, told))
        theirs = score(case, java.assign("sticky", case.cluster, told))
        assert (ours.loads, ours.moved) <= (theirs.loads, theirs.moved), case
        ahead += (ours.loads, ours.moved) < (theirs.loads, theirs.moved)
    assert ahead > 0


def test_a3_a14_cooperative_sticky_is_never_behind_kafkas(java: JavaAssignors) -> None:
    """Compared once both are settled: after the rounds in which what moves is given up."""
    rng = random.Random(14)
    for _ in range(GROUPS // 4):
        case = sane_case(rng)
        ours = score(case, settled(case, CooperativeStickyAssignor().assign))
        theirs = score(case, settled(case, partial(java.assign, "cooperative-sticky")))
        assert (ours.loads, ours.moved) <= (theirs.loads, theirs.moved), case


@pytest.mark.parametrize("seed", range(8))
def test_a11_a13_large_groups_are_never_behind_kafkas_either(
    java: JavaAssignors, seed: int
) -> None:
    """Members of a few kinds, 3,000 partitions."""
    rng = random.Random(seed)
    case = large_case(rng, rng.randint(20, 120), rng.randint(2, 40), 3000)
    members = {
        member: MemberSubscription(topics=entry.topics, owned=entry.owned)
        for member, entry in case.subscriptions.items()
    }
    ours = score(case, UniformAssignor().assign(members, case.cluster.partitions))
    theirs = score(case, java.assign("server-uniform", case.cluster, case.subscriptions))
    assert (ours.loads, ours.moved) <= (theirs.loads, theirs.moved)
    smaller = large_case(rng, 12, 6, 200)
    ours = score(smaller, settled(smaller, CooperativeStickyAssignor().assign))
    theirs = score(smaller, settled(smaller, partial(java.assign, "cooperative-sticky")))
    assert (ours.loads, ours.moved) <= (theirs.loads, theirs.moved)
