"""Requirements of Kafka's tests of its sticky assignors (A10 to A17); input order never matters."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import cast

import pytest

from kohort.group.assignors import (
    BUILTIN_ASSIGNORS,
    Assignor,
    ClusterView,
    CooperativeStickyAssignor,
    MemberSubscription,
    RackedClusterView,
    ServerAssignor,
    ServerRangeAssignor,
    StickyAssignor,
    Subscription,
    UniformAssignor,
)
from kohort.group.assignors.interface import Assignment, GroupMetadata
from kohort.group.assignors.ownership import without_moving
from kohort.group.assignors.problem import build, by_member, solve
from kohort.group.assignors.sticky import decode_user_data, encode_user_data
from kohort.types import TopicPartition
from kohort.values import replace
from tests.group.assignors.cases import Case, random_case, score, settled

ALL = sorted(BUILTIN_ASSIGNORS.values(), key=lambda assignor: assignor.name)


def everything(count: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in range(count))


def members(*owned: set[int], generation: int = 1) -> dict[str, Subscription]:
    """Return members of one topic that own these partitions of it."""
    return {
        f"m{number}": Subscription(
            topics=frozenset({"t"}),
            owned=frozenset(TopicPartition("t", each) for each in some),
            generation=generation,
        )
        for number, some in enumerate(owned)
    }


def numbers(assignment: object) -> dict[str, set[int]]:
    assert isinstance(assignment, dict)
    return {member: {p.partition for p in owned} for member, owned in assignment.items()}


@pytest.mark.parametrize("assignor", ALL, ids=lambda a: a.name)
def test_a10_every_partition_goes_to_one_subscriber(assignor: Assignor) -> None:
    """This does not depend on claims; a cooperative group finally assigns withheld partitions."""
    rng = random.Random(10)
    for _ in range(300):
        case = random_case(rng, racks=rng.random() < 0.5)
        score(
            case,
            settled(case, assignor.assign)
            if "coop" in assignor.name
            else assignor.assign(case.cluster, case.subscriptions),
        )


@pytest.mark.parametrize("assignor", ALL, ids=lambda a: a.name)
def test_the_order_of_members_never_counts(assignor: Assignor) -> None:
    rng = random.Random(0)
    for _ in range(200):
        case = random_case(rng, racks=rng.random() < 0.5)
        shuffled = list(case.subscriptions.items())
        rng.shuffle(shuffled)
        cluster = replace(
            case.cluster, partitions=dict(reversed(list(case.cluster.partitions.items())))
        )
        ours = assignor.assign(case.cluster, case.subscriptions)
        assert assignor.assign(cluster, dict(shuffled)) == ours


def test_the_hash_seed_of_the_process_never_counts() -> None:
    """Members run in several processes, and a new leader must not move the old one's assignment."""
    program = (
        "import random; from tests.group.assignors.cases import random_case;"
        "from kohort.group.assignors.problem import build, by_member, solve\n"
        "rng = random.Random(5)\n"
        "for _ in range(100):\n"
        "    case = random_case(rng); problem = build(case.cluster, case.subscriptions)\n"
        "    print(sorted(by_member(problem, solve(problem)).items()))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


def test_a12_equal_subscriptions_are_within_one() -> None:
    rng = random.Random(12)
    for _ in range(200):
        case = random_case(rng)
        topics = frozenset(case.cluster.partitions)
        equal = {m: replace(entry, topics=topics) for m, entry in case.subscriptions.items()}
        problem = build(case.cluster, equal)
        loads = score(Case(case.cluster, equal), by_member(problem, solve(problem))).loads
        assert max(loads) - min(loads) <= 1


def test_a13_a_second_assignment_changes_nothing() -> None:
    rng = random.Random(13)
    for _ in range(300):
        case = random_case(rng)
        first = settled(case, CooperativeStickyAssignor().assign)
        owned = {
            member: replace(entry, owned=first[member], generation=9)
            for member, entry in case.subscriptions.items()
        }
        again = CooperativeStickyAssignor().assign(case.cluster, owned)
        assert {member: frozenset(some) for member, some in again.items()} == first


def test_a13_who_stays_keeps_what_it_can() -> None:
    """One of three leaves: only its partitions move; then it returns."""
    two = members({0, 1}, {2, 3})
    after = numbers(CooperativeStickyAssignor().assign(ClusterView({"t": 6}), two))
    assert {0, 1} < after["m0"]
    assert {2, 3} < after["m1"]
    three = members(after["m0"], after["m1"], set())
    third = numbers(settled(Case(ClusterView({"t": 6}), three), CooperativeStickyAssignor().assign))
    assert third["m0"] < after["m0"]
    assert third["m1"] < after["m1"]
    assert len(third["m2"]) == 2


def test_l24_a14_what_moves_is_withheld_for_one_round() -> None:
    rng = random.Random(24)
    moved = 0
    for _ in range(1000):
        case = random_case(rng)
        problem = build(case.cluster, case.subscriptions)
        at_once = by_member(problem, solve(problem))
        given = CooperativeStickyAssignor().assign(case.cluster, case.subscriptions)
        assert given == without_moving(at_once, case.subscriptions)
        moved += given != at_once
    assert moved > 100


def test_the_names_of_a_million_partitions_are_not_made_anew() -> None:
    claimed = TopicPartition("t", 1000)
    some = {"m0": Subscription(topics=frozenset({"t"}), owned=frozenset({claimed}), generation=1)}
    given = CooperativeStickyAssignor().assign(ClusterView({"t": 1001}), some)["m0"]
    assert given == [TopicPartition("t", number) for number in range(1001)]
    assert given[1000] is claimed


def test_what_is_given_has_the_right_type_however_it_was_claimed() -> None:
    plain = cast("TopicPartition", ("t", 1))
    some = {"m0": Subscription(topics=frozenset({"t"}), owned=frozenset({plain}), generation=1)}
    given = CooperativeStickyAssignor().assign(ClusterView({"t": 3}), some)["m0"]
    assert [type(each) for each in given] == [TopicPartition] * 3


def test_a14_rebalances_converge() -> None:
    """`settled` fails after five rounds; at most three are needed: revoke, assign, no change."""
    rng = random.Random(29)
    for _ in range(500):
        settled(random_case(rng), CooperativeStickyAssignor().assign, most_rounds=3)


def test_a15_l21_the_newer_generation_keeps_its_claim() -> None:
    zombie = members({0, 1, 2, 3}, generation=3)
    both = {**zombie, "m1": members(set(), {0, 1}, generation=4)["m1"]}
    problem = build(ClusterView({"t": 4}), both)
    assert numbers(by_member(problem, solve(problem))) == {"m0": {2, 3}, "m1": {0, 1}}


def test_a15_l21_nobody_keeps_what_two_claim_since_the_same_generation() -> None:
    same = members({0, 1}, {1, 2})
    problem = build(ClusterView({"t": 3}), same)
    assert list(problem.owner) == [0, -1, 1]
    assert numbers(CooperativeStickyAssignor().assign(ClusterView({"t": 3}), same)) == {
        "m0": {0},
        "m1": {2},
    }


def test_a15_l22_the_generation_may_come_as_user_data() -> None:
    """For leaders older than KIP-792, whose subscription lacks the field."""
    newer = CooperativeStickyAssignor()
    metadata = GroupMetadata(group_id="g", generation_id=7, member_id="m1")
    assert newer.subscription_user_data(frozenset({"t"})) == b"\xff\xff\xff\xff"
    newer.on_assignment(Assignment(everything(2)), metadata)
    data = newer.subscription_user_data(frozenset({"t"}))
    assert data == b"\0\0\0\x07"
    old = members({0, 1}, generation=6)
    claims = {**old, "m1": replace(members(set(), {0, 1}, generation=-1)["m1"], user_data=data)}
    problem = build(ClusterView({"t": 2}), claims)
    assert list(problem.owner) == [1, 1]


def test_a15_l23_partitions_of_topics_gone_or_unwanted_count_as_nobodys() -> None:
    stale = {
        "m0": Subscription(
            topics=frozenset({"t"}),
            owned=frozenset(
                {TopicPartition("gone", 0), TopicPartition("u", 0), TopicPartition("t", 9)}
            ),
            generation=1,
        ),
        "m1": Subscription(topics=frozenset({"t", "u"})),
    }
    cluster = ClusterView({"t": 1, "u": 1})
    given = settled(Case(cluster, stale), CooperativeStickyAssignor().assign)
    assert given == {
        "m0": frozenset({TopicPartition("t", 0)}),
        "m1": frozenset({TopicPartition("u", 0)}),
    }


def test_a15_an_eager_member_that_comes_back_does_not_get_its_old_claim() -> None:
    """`sticky` keeps its claim in user data: here m1 was away while m0 got everything."""
    assignors = {member: StickyAssignor() for member in ("m0", "m1")}
    for member, generation, had in (("m0", 8, everything(4)), ("m1", 5, everything(2))):
        metadata = GroupMetadata(group_id="g", generation_id=generation, member_id=member)
        assignors[member].on_assignment(Assignment(had), metadata)
    topics = frozenset({"t"})
    subscriptions = {
        member: Subscription(topics=topics, user_data=assignor.subscription_user_data(topics))
        for member, assignor in assignors.items()
    }
    given = StickyAssignor().assign(ClusterView({"t": 4}), subscriptions)
    assert numbers(given) == {"m0": {0, 1}, "m1": {2, 3}}


def test_user_data_of_the_sticky_assignor_is_read_as_kafka_does() -> None:
    """Its oldest version has no generation; invalid data claims nothing."""
    owned = frozenset({TopicPartition("größe", 3), TopicPartition("a", 0), TopicPartition("a", 7)})
    data = encode_user_data(owned, 12)
    assert decode_user_data(data) == (owned, 12)
    assert decode_user_data(data[:-4]) == (owned, -1)
    for broken in (b"", b"\0", b"\xff" * 40, b"\x7f" * 40, data[:9], b"\0\0\0\1\0\1\xff"):
        assert decode_user_data(broken) == (frozenset(), -1)
    assert StickyAssignor().subscription_user_data(frozenset({"a"})) is None


@pytest.mark.parametrize("racked", [False, True], ids=["no racks", "brokers and members"])
def test_a16_racks_never_cost_balance_or_moves(racked: bool) -> None:
    """The three configurations of Kafka's tests; with racks of brokers only, nothing changes."""
    rng = random.Random(16)
    for _ in range(300):
        case = random_case(rng, racks=True)
        assert isinstance(case.cluster, RackedClusterView)
        blind = ClusterView(case.cluster.partitions)
        alone = {m: replace(entry, rack_id=None) for m, entry in case.subscriptions.items()}
        subscriptions = case.subscriptions if racked else alone
        seeing, plain = (
            by_member(problem, solve(problem))
            for problem in (build(case.cluster, subscriptions), build(blind, subscriptions))
        )
        if racked:
            ours, theirs = score(case, seeing), score(case, plain)
            assert (ours.loads, ours.moved) == (theirs.loads, theirs.moved)
            assert ours.far <= theirs.far
        else:
            assert seeing == plain


def served(count: int, *owned: set[int]) -> dict[str, set[int]]:
    """Return `uniform`'s assignment for members that own these partitions of one topic."""
    group = {
        member: MemberSubscription(topics=entry.topics, owned=entry.owned)
        for member, entry in members(*owned).items()
    }
    return numbers(UniformAssignor().assign(group, {"t": count}))


def test_a17_uniform_keeps_what_it_can() -> None:
    """When a partition or a member is added or removed."""
    assert served(4, set(), set()) == {"m0": {0, 2}, "m1": {1, 3}}
    assert served(4, {0, 1}, {2, 3}) == {"m0": {0, 1}, "m1": {2, 3}}
    assert served(5, {0, 1}, {2, 3}) == {"m0": {0, 1, 4}, "m1": {2, 3}}
    assert served(3, {0, 1}, {2, 3}) == {"m0": {0, 1}, "m1": {2}}
    assert served(6, {0, 1, 2}, {3, 4, 5}, set()) == {"m0": {0, 1}, "m1": {3, 4}, "m2": {2, 5}}
    assert served(6, {0, 1}, {2, 3}) == {"m0": {0, 1, 4}, "m1": {2, 3, 5}}


@pytest.mark.parametrize(
    "assignor", [UniformAssignor(), ServerRangeAssignor()], ids=lambda a: a.name
)
def test_a17_racks_are_ignored_and_nothing_goes_to_who_does_not_subscribe(
    assignor: ServerAssignor,
) -> None:
    topics = frozenset({"t", "not there"})
    group = {
        "m0": MemberSubscription(topics=topics, rack_id="east"),
        "m1": MemberSubscription(topics=topics, rack_id="west"),
        "m2": MemberSubscription(topics=frozenset()),
    }
    racks = {"t": [frozenset({"west"})] * 2 + [frozenset({"east"})] * 2}
    given = assignor.assign(group, {"t": 4, "nobody's": 3}, racks)
    assert given == assignor.assign(group, {"t": 4, "nobody's": 3})
    assert {member: len(owned) for member, owned in given.items()} == {"m0": 2, "m1": 2, "m2": 0}
    assert assignor.assign({}, {"t": 4}) == {}


def test_uniform_and_range_look_at_racks_when_asked_to() -> None:
    group = {
        "m0": MemberSubscription(topics=frozenset({"t"}), rack_id="east"),
        "m1": MemberSubscription(topics=frozenset({"t"}), rack_id="west"),
    }
    racks = {"t": [frozenset({"west"}), frozenset({"west"}), frozenset({"east"})]}
    uniform = UniformAssignor(rack_aware=True).assign(group, {"t": 3}, racks)
    assert numbers(uniform) == {"m0": {2}, "m1": {0, 1}}
    by_range = ServerRangeAssignor(rack_aware=True).assign(group, {"t": 3}, racks)
    assert numbers(by_range) == {"m0": {2}, "m1": {0, 1}}
