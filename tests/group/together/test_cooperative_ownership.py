"""Owners of partitions when members' claims conflict (KIP-792)."""

from __future__ import annotations

import random
import struct
import warnings
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kohort.errors import LocalProtocolError
from kohort.group.assignors import (
    Assignor,
    ClusterView,
    RebalanceProtocol,
    Subscription,
    settle_claims,
    validate_subscription,
)
from kohort.group.assignors.ownership import claimed_generation, without_moving
from kohort.group.effects import AssignmentJob
from kohort.group.member import leader
from kohort.group.subscription import decode_assignment
from kohort.types import TopicPartition
from tests.group.together.cooperative import AtOnce, Keep

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

TOPICS = frozenset({"t"})


def parts(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in numbers)


def claim(generation: int, *numbers: int, topics: frozenset[str] = TOPICS) -> Subscription:
    return Subscription(topics=topics, owned=parts(*numbers), generation=generation)


def test_l21_the_highest_generation_wins() -> None:
    owners = settle_claims({"live": claim(7, 0, 1), "zombie": claim(6, 0, 1, 2)})
    assert owners == {"live": parts(0, 1), "zombie": parts(2)}


def test_l21_of_two_equal_claims_none_holds_unless_a_higher_one_does() -> None:
    said = {"a": claim(5, 0), "b": claim(5, 0)}
    assert settle_claims(said) == {"a": frozenset(), "b": frozenset()}
    assert settle_claims(said | {"c": claim(6, 0)})["c"] == parts(0)
    # no generation sorts lowest
    assert settle_claims({"a": claim(-1, 0), "b": claim(0, 0)})["b"] == parts(0)


def test_l22_before_kip_792_the_generation_is_in_the_user_data() -> None:
    old = Subscription(topics=TOPICS, owned=parts(0), user_data=struct.pack(">i", 9))
    assert claimed_generation(old) == 9
    assert settle_claims({"old": old, "new": claim(8, 0)})["old"] == parts(0)
    both = Subscription(topics=TOPICS, generation=3, user_data=struct.pack(">i", 9))
    assert claimed_generation(both) == 3
    for data in (None, b"", b"123", b"12345", struct.pack(">i", -5)):
        assert claimed_generation(Subscription(topics=TOPICS, user_data=data)) == -1


def test_l23_only_topics_that_are_still_subscribed_to_count() -> None:
    gone = claim(9, 0, topics=frozenset({"other"}))
    assert settle_claims({"a": gone, "b": claim(8, 0)}) == {"a": frozenset(), "b": frozenset()}


SAID = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        claim,
        st.integers(-1, 3),
        st.integers(0, 5),
        st.integers(0, 5),
        topics=st.sampled_from([TOPICS, frozenset({"other"})]),
    ),
    min_size=1,
)


@given(said=SAID)
def test_l21_a15_settled_claims_never_overlap(said: dict[str, Subscription]) -> None:
    owners = settle_claims(said)
    assert owners == settle_claims(dict(reversed(said.items())))
    settled = [each for owned in owners.values() for each in owned]
    assert len(settled) == len(set(settled))
    for member, owned in owners.items():
        assert owned <= said[member].owned
        for rival, entry in said.items():
            assert (
                rival == member
                or not owned & entry.owned
                or (entry.generation < said[member].generation)
            )
    valid = validate_subscription(said)
    assert {member: entry.owned for member, entry in valid.items()} == owners
    assert settle_claims(valid) == owners


@given(said=SAID, numbers=st.lists(st.integers(0, 5), unique=True))
def test_l24_a14_nothing_is_added_that_somebody_else_claims(
    said: dict[str, Subscription], numbers: list[int]
) -> None:
    intended = {member: list(parts(*numbers[n :: len(said)])) for n, member in enumerate(said)}
    now = without_moving(intended, said)
    for member, given_now in now.items():
        others = [entry.owned for other, entry in said.items() if other != member]
        added = set(given_now) - said[member].owned
        assert not added & set().union(*others)
        assert set(given_now) <= set(intended[member])


ZOMBIE = {"B": claim(5, 0, 1, 2, 3), "Z": claim(3, 0, 1, 2, 3)}


@pytest.mark.parametrize("order", ["BZ", "ZB"])
def test_l21_a_zombie_does_not_win_against_a_live_member(order: str) -> None:
    """KIP-792: B owns four partitions; Z was away since generation 3 and claims them as well."""
    said = {member: ZOMBIE[member] for member in order}
    assignment = Keep().assign(ClusterView({"t": 4}), said)
    assert set(assignment["B"]) < parts(0, 1, 2, 3)
    assert assignment["Z"] == []  # B must revoke half of them first


def test_l21_kafka_python_lets_the_zombie_win() -> None:
    """The reason for the rule: there B must stop and Z may start in the same round."""
    assignor = CooperativeStickyAssignor()

    def member(name: str, said: Subscription) -> SimpleNamespace:
        assignor.member_assignment = sorted(said.owned)
        metadata = assignor.metadata(["t"])
        return SimpleNamespace(member_id=name, group_instance_id=None, metadata=metadata)

    cluster = SimpleNamespace(
        partitions_for_topic=lambda topic: {0, 1, 2, 3} if topic == "t" else None,
        topics=lambda: {"t"},
    )
    members = [member(name, said) for name, said in ZOMBIE.items()]
    assignment = assignor.assign(cluster, members)
    got = [number for _, numbers in assignment["Z"].assigned_partitions for number in numbers]
    assert got, "kafka-python has mended it: change the documents"


def job(assignor: Assignor, said: dict[str, Subscription]) -> AssignmentJob:
    return AssignmentJob(1, assignor.name, said)


def test_l8_what_moves_in_one_round_is_refused() -> None:
    said = {"a": claim(1, 0, 1), "b": claim(1)}
    cluster = ClusterView({"t": 2})
    keep, at_once = Keep(), AtOnce()
    fine = leader.compute(job(keep, said), {"keep": keep}, cluster)
    assert decode_assignment(fine["a"])[0] == parts(0)
    with pytest.raises(Exception, match="at-once gives t-0 to member b while member a owns it"):
        leader.compute(job(at_once, said), {"at-once": at_once}, cluster)


class Fixed(Assignor):
    """Returns a fixed assignment."""

    name = "fixed"
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    def __init__(self, given: dict[str, frozenset[TopicPartition]]) -> None:
        self._given = given

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        return {member: sorted(partitions) for member, partitions in self._given.items()}


def refusal(said: dict[str, Subscription], given: dict[str, frozenset[TopicPartition]]) -> str:
    """Return why the leader rejects an assignment, or "" if it accepts it."""
    assignor = Fixed(given)
    try:
        leader.compute(job(assignor, said), {"fixed": assignor}, ClusterView({"t": 4}))
    except LocalProtocolError as error:
        return str(error)
    return ""


def test_l8_a_live_owner_loses_nothing_to_a_stale_claim() -> None:
    """KIP-792: both claim t-1, and it is assigned to the one that missed a rebalance."""
    said = {"live": claim(7, 0, 1), "stale": claim(3, 1)}
    text = refusal(said, {"live": parts(0), "stale": parts(1)})
    assert "fixed gives t-1 to member stale while member live owns it since generation 7" in text
    assert "(the claim of stale is of 3)" in text
    assert refusal(said, {"live": parts(0, 1), "stale": parts()}) == ""
    assert refusal(said, {"live": parts(0), "stale": parts()}) == ""


def test_l8_what_two_claim_since_the_same_generation_is_given_up_by_both_first() -> None:
    said = {"a": claim(3, 1), "b": claim(3, 1)}
    assert "gives t-1 to member a while member b owns it" in refusal(said, {"a": parts(1)})
    assert refusal(said, {"a": parts(0), "b": parts(2)}) == ""


def test_s4_a_partition_that_is_given_to_two_members_is_refused() -> None:
    said = {"a": claim(3, 1), "b": claim(3)}
    given = {"a": parts(1, 2), "b": parts(2, 3)}
    assert refusal(said, given) == "assignor fixed gives t-2 to two members: a and b"


@pytest.mark.parametrize("seed", range(20))
def test_l8_what_without_moving_leaves_is_always_taken(seed: int) -> None:
    chance = random.Random(seed)
    said = {
        member: claim(chance.randint(-1, 3), *chance.sample(range(4), chance.randint(0, 4)))
        for member in "abc"
    }
    owners = [chance.choice("abc") for _ in range(4)]
    wanted = {
        member: [p for p in parts(0, 1, 2, 3) if owners[p.partition] == member] for member in "abc"
    }
    given = {member: frozenset(each) for member, each in without_moving(wanted, said).items()}
    assert refusal(said, given) == ""


def test_l8_the_check_is_not_for_eager_groups_nor_for_cooperative_sticky() -> None:
    class Eager(AtOnce):
        supported_protocols = (RebalanceProtocol.EAGER,)

    class Builtin(AtOnce):
        name = "cooperative-sticky"  # KAFKA-13406

    said = {"a": claim(1, 0, 1), "b": claim(1)}
    for assignor in (Eager(), Builtin()):
        found = leader.compute(
            job(assignor, said), {assignor.name: assignor}, ClusterView({"t": 2})
        )
        assert decode_assignment(found["b"])[0] == parts(0, 1)


def test_kip_429_partitions_that_are_owned_but_unknown_to_the_leader() -> None:
    """Its metadata may be older than its predecessor's: it refreshes before it assigns."""
    said = {"a": claim(1, 0, 3), "b": claim(1, 1)}
    entry = job(Keep(), said)
    assert leader.unknown_claims(entry, ClusterView({"t": 2})) == parts(3)
    assert leader.unknown_claims(entry, ClusterView({"t": 4})) == frozenset()
    assert leader.unknown_claims(entry, ClusterView({})) == parts(0, 1, 3)
