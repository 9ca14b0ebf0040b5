"""Classic groups that become consumer groups (K40, K41)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.events import GroupStateChanged, MemberLeft, ProtocolChanged
from tests.group.coordinator.migration.dialogue import MixedDialogue

FULL = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("t",), "held": {}}


@pytest.fixture
def group() -> MixedDialogue:
    return MixedDialogue()


def test_k41_members_are_taken_along_with_what_they_have(group: MixedDialogue) -> None:
    first, second = group.stable_classic("c0", "s1", session=7_000, rebalance=9_000)
    assert group.told(group.enter("z", "t")) == {}
    taken = group.group
    assert (taken.epoch, taken.assignment_epoch, taken.classic_members) == (2, 2, 2)
    assert group.has(first) == {"t": {0, 2}}
    assert group.has(second) == {"t": {1, 3}}
    member = group.member(second)
    assert (member.epoch, member.previous_epoch, member.state.name) == (1, 1, "STABLE")
    assert (member.instance_id, member.client_id, member.topics) == ("s1", "s1", ("t",))
    assert member.rebalance_timeout_ms == 9_000
    assert member.classic is not None
    assert member.classic.session_timeout_ms == 7_000
    assert [each.name for each in member.classic.supported_protocols] == ["range"]
    assert dict(group.shard.log.groups) == {}
    assert dict(group.shard.session.groups) == {}
    group.check_log()


def test_k41_nobody_is_said_to_have_left_or_come(group: MixedDialogue) -> None:
    group.stable_classic("c0", "c1")
    group.observed.clear()
    group.enter("z", "t")
    (change,) = (each for each in group.observed if isinstance(each, ProtocolChanged))
    assert (change.protocol, change.generation) == ("consumer", 1)
    assert [each for each in group.observed if isinstance(each, MemberLeft)] == []
    states = [each for each in group.observed if isinstance(each, GroupStateChanged)]
    assert states[0].before == "Stable"
    assert "Dead" not in {each.after for each in states}


def test_k41_old_deadlines_are_gone_and_new_ones_are_the_members_own(
    group: MixedDialogue,
) -> None:
    first, second = group.stable_classic("c0", "s1", session=7_000)
    group.new_id(client_id="c2", protocols=(("range", b""),))
    group.enter("z", "t")
    due = {
        (type(key).__name__, getattr(key, "member_id", "")): at - group.now
        for key, at in group.shard.session.deadlines.due_times().items()
        if key.group_id
    }
    assert due == {
        ("ConsumerSessionExpired", first): 7_000,
        ("ConsumerSessionExpired", second): 7_000,
        ("ConsumerSessionExpired", "z"): 45_000,
    }


def test_k40_a_wrong_expression_converts_nothing(group: MixedDialogue) -> None:
    (member,) = group.stable_classic("s0")
    more = {"subscribed_topic_regex": "(", "rebalance_timeout_ms": 1_000, "held": {}}
    assert group.refused("z", 0, **more) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group.beat(member, 1) == ErrorCode.NONE
    more["subscribed_topic_regex"] = "t"
    assert group.heartbeat("z", 0, **more).error_code == 0
    assert set(group.group.members) == {member, "z"}


def test_k40_a_request_that_is_refused_leaves_everybody_parked() -> None:
    group = MixedDialogue(group_consumer_max_size=2)
    group.stable_classic("s0")
    parked = group.join_classic(instance="s1")
    assert parked not in group.answers
    assert group.refused("z", 0, **FULL) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert parked not in group.answers
    assert group.state == "PreparingRebalance"


def test_k48_a_group_whose_topics_are_gone_migrates(group: MixedDialogue) -> None:
    """Assigned partitions of a topic deleted in the meantime are ignored."""
    (member,) = group.stable_classic("s0")
    group.topics(u=1)
    assert group.enter("z", "u").error_code == 0
    assert group.has(member) == {}
    group.check_log()


def test_k41_the_first_rebalance_is_converted_too(group: MixedDialogue) -> None:
    """Kafka fails here (decision 0012): the group has no assignor yet."""
    parked = group.join_classic(instance="s0", assignors=("sticky", "range"))
    answer = group.enter("z", "t")
    assert answer.error_code == 0
    assert group.answers[parked].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = group.joined(group.answers[parked].member_id, instance="s0")
    assert (again.error_code, again.generation_id) == (0, 1)
    assert group.synced(again.member_id, 1) | group.told(answer)["t"] == {0, 1, 2, 3}  # type: ignore[index]  # it has some


def test_k41_who_takes_a_static_place_gets_what_the_rebalance_would_have_given(
    group: MixedDialogue,
) -> None:
    """Its subscription is that of its predecessor, so only the rebalance requires a new target."""
    group.join_classic(instance="s0")
    answer = group.enter("z", "t", instance_id="s0")
    assert group.told(answer) == {"t": {0, 1, 2, 3}}


def test_k41_a_rebalance_on_top_of_another_takes_nothing_away(group: MixedDialogue) -> None:
    """Cooperative members still have the partitions from before both (decision 0012)."""
    (member,) = group.stable_classic("s0")
    second = group.join_classic(instance="s1")
    assert group.answers[group.join_classic(member, instance="s0")].generation_id == 2
    assert group.answers[second].generation_id == 2
    group.join_classic(instance="s2")
    assert group.state == "PreparingRebalance"
    assert group.told(group.enter("z", "t")) == {}
    assert group.has(member) == {"t": {0, 1, 2, 3}}


def giving_up(group: MixedDialogue) -> tuple[str, str, str]:
    """Create two cooperative members; the first must revoke 1 and 3, which go to the second.

    Returns:
        Both, and a consumer that joined before they rejoined for the second round.
    """
    (first,) = group.stable_classic("s0")
    parked = group.join_classic(instance="s1")
    asked = group.join_classic(first, instance="s0", owned=range(4))
    answer = group.answers[asked]
    second = group.answers[parked].member_id
    given = {first: group.assignment((0, 2)), second: group.assignment(())}
    group.sync_token(second, answer.generation_id, {})
    group.sync_token(first, answer.generation_id, given)
    assert group.state == "Stable"
    group.enter("z", "t")
    return first, second, "z"


def test_k41_s4_what_a_cooperative_member_is_giving_up_is_not_free(group: MixedDialogue) -> None:
    """The last assignment no longer has it, but the member's last join does."""
    first, second, third = giving_up(group)
    member = group.member(first)
    assert (member.epoch, member.state.name) == (2, "UNREVOKED_PARTITIONS")
    assert group.by_name(member.revoking) == {"t": {1, 3}}
    joined = group.joined(second, instance="s1")
    assert group.synced(second, joined.generation_id) == set()
    assert group.told(group.heartbeat(third, 3, held={})) is None
    group.check_log()


def test_k41_it_is_free_when_the_member_has_joined_without_it(group: MixedDialogue) -> None:
    first, second, third = giving_up(group)
    assert group.beat(first, 2, "s0") == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.synced(first, 2) == {0, 2}
    again = group.joined(first, instance="s0", owned=(0, 2))
    has = group.synced(first, again.generation_id)
    has |= group.synced(second, group.joined(second, instance="s1").generation_id)
    group.settle_consumer(third)
    assert sorted([*has, *group.has(third)["t"]]) == [0, 1, 2, 3]


def test_k41_who_takes_a_static_place_between_two_rounds_gets_what_was_given_up(
    group: MixedDialogue,
) -> None:
    """Its subscription is that of its predecessor: the pending round requires a new target."""
    (first,) = group.stable_classic("s0")
    parked = group.join_classic(instance="s1")
    asked = group.join_classic(first, instance="s0", owned=range(4))
    second, generation = group.answers[parked].member_id, group.answers[asked].generation_id
    given = {first: group.assignment((0, 2)), second: group.assignment(())}
    group.sync_token(first, generation, given)
    group.enter("z", "t", instance_id="s1")
    again = group.joined(first, instance="s0", owned=(0, 2))
    has = group.synced(first, again.generation_id)
    group.settle_consumer("z")
    assert (has, group.has("z")) == ({0, 2}, {"t": {1, 3}})


def test_k41_a_claim_upon_what_another_member_was_given_counts_for_nothing(
    group: MixedDialogue,
) -> None:
    first, second = group.stable_classic("s0", "s1")
    token = group.join_classic(first, instance="s0", owned=(0, 1, 2, 3))
    tokens = [token, group.join_classic(second, instance="s1")]
    group.settle_evenly(tokens)
    group.enter("z", "t")
    assert group.by_name(group.member(first).revoking) == {}
    assert group.has(second) == {"t": {1, 3}}
