"""Members of the classic protocol in a consumer group (K45, K46)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.events import (
    ConsumerJoinExpired,
    ConsumerSessionExpired,
    ConsumerSyncExpired,
    Unload,
)
from kohort.group.events import Cause, MemberLeft
from tests.group.coordinator.dialogue import GROUP
from tests.group.coordinator.migration.dialogue import MixedDialogue


@pytest.fixture
def group() -> MixedDialogue:
    made = MixedDialogue()
    made.enter("z", "t", instance_id="i-z")
    return made


def causes(group: MixedDialogue) -> list[Cause]:
    return [each.cause for each in group.observed if isinstance(each, MemberLeft)]


def test_k45_a_dynamic_member_is_told_its_id_first(group: MixedDialogue) -> None:
    asked = group.joined()
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert set(group.group.members) == {"z"}
    answer = group.joined(asked.member_id)
    assert (answer.error_code, answer.generation_id, answer.members) == (0, 3, ())
    assert (answer.leader, answer.protocol_name) == ("", "range")


def test_k45_it_gets_what_others_give_up(group: MixedDialogue) -> None:
    joined = group.joined(instance="s0")
    member, generation = joined.member_id, joined.generation_id
    assert group.synced(member, generation) == set()
    assert group.beat(member, generation, "s0") == ErrorCode.NONE
    kept = group.target("z")
    group.heartbeat("z", 2, instance_id="i-z")
    group.heartbeat("z", 2, instance_id="i-z", held=kept)
    assert group.beat(member, generation, "s0") == ErrorCode.REBALANCE_IN_PROGRESS
    again = group.joined(member, instance="s0")
    assert group.synced(member, again.generation_id) == {0, 1, 2, 3} - kept["t"]
    assert group.beat(member, again.generation_id, "s0") == ErrorCode.NONE


def test_k45_it_gives_up_by_joining_without(group: MixedDialogue) -> None:
    group.heartbeat("z", -1, instance_id="i-z")
    (member,) = group.stable_classic("s0")
    group.enter("z", "t", instance_id="i-z")
    kept = group.target(member)["t"]
    group.joined(member, instance="s0", owned=range(4))
    assert group.synced(member, 1) == kept
    assert group.beat(member, 1, "s0") == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.joined(member, instance="s0", owned=kept).generation_id == 2
    assert group.told(group.heartbeat("z", 2, instance_id="i-z")) == {"t": set(range(4)) - kept}
    assert ConsumerJoinExpired(GROUP, member) not in group.shard.session.deadlines.due_times()


def test_k45_s1_who_was_thrown_out_hears_it_while_it_has_partitions(group: MixedDialogue) -> None:
    """Others may own its partitions by now; without any, it is the same as a new member."""
    assert group.joined("gone", owned=(0, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(group.group.members) == {"z"}
    assert group.joined("gone").error_code == ErrorCode.NONE


def test_k46_its_session_is_its_own(group: MixedDialogue) -> None:
    group.joined(instance="s0", session=7_000)
    group.advance(6_999)
    group.heartbeat("z", 2, instance_id="i-z")
    assert len(group.group.members) == 2
    group.advance(1)
    assert set(group.group.members) == {"z"}
    assert causes(group) == [Cause.SESSION_EXPIRED]


def test_k46_its_session_is_its_own_after_a_load(group: MixedDialogue) -> None:
    member = group.joined(instance="s0", session=7_000).member_id
    group.reload()
    due = group.shard.session.deadlines.due_times()
    assert due[ConsumerSessionExpired(GROUP, member)] == 7_000
    assert due[ConsumerSessionExpired(GROUP, "z")] == 45_000


def test_k46_who_does_not_join_again_is_out(group: MixedDialogue) -> None:
    """The timeout starts with the first heartbeat that asks it to rejoin."""
    joined = group.joined(instance="s0", rebalance=9_000)
    member = joined.member_id
    group.synced(member, joined.generation_id)
    group.topics(t=5)
    group.heartbeat("z", 2, instance_id="i-z")
    for _ in range(3):
        code = group.beat(member, joined.generation_id, "s0")
        assert code == ErrorCode.REBALANCE_IN_PROGRESS
        group.advance(3_000)
    assert group.beat(member, joined.generation_id, "s0") == ErrorCode.UNKNOWN_MEMBER_ID
    assert causes(group) == [Cause.JOIN_TIMED_OUT]


def test_k46_who_does_not_sync_is_out(group: MixedDialogue) -> None:
    joined = group.joined(instance="s0", rebalance=9_000)
    for _ in range(3):
        assert group.beat(joined.member_id, joined.generation_id, "s0") == ErrorCode.NONE
        group.advance(3_000)
    assert causes(group) == [Cause.SYNC_TIMED_OUT]
    assert set(group.group.members) == {"z"}


def test_k46_a_sync_that_comes_too_late_asks_to_join(group: MixedDialogue) -> None:
    joined = group.joined(instance="s0")
    member = joined.member_id
    group.topics(t=5)
    group.heartbeat("z", 2, instance_id="i-z")
    token = group.sync_token(
        member, joined.generation_id, {}, protocol_type="consumer", protocol_name="range"
    )
    assert group.answers[token].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    due = group.shard.session.deadlines.due_times()
    assert {ConsumerJoinExpired(GROUP, member), ConsumerSyncExpired(GROUP, member)} <= set(due)


def test_k45_a_join_waits_for_its_target(group: MixedDialogue) -> None:
    group.holds_jobs = True
    token = group.join_classic(instance="s0")
    assert token not in group.answers
    group.do_jobs()
    assert (group.answers[token].error_code, group.answers[token].generation_id) == (0, 3)


def test_k45_who_joins_again_waits_with_that_join(group: MixedDialogue) -> None:
    """The partitions it owned at its first join are not those it owns now."""
    group.holds_jobs = True
    first = group.join_classic(instance="s0")
    member = group.group.static_member("s0")
    assert member is not None
    second = group.join_classic(member.member_id, instance="s0")
    assert group.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in group.answers
    group.do_jobs()
    assert (group.answers[second].error_code, group.answers[second].generation_id) == (0, 3)


def test_k45_a_join_that_waits_is_sent_away_with_the_coordinator(group: MixedDialogue) -> None:
    group.holds_jobs = True
    token = group.join_classic(instance="s0")
    group.run(Unload())
    assert group.answers[token].error_code == ErrorCode.NOT_COORDINATOR


def test_k45_a_member_that_is_too_large_hurts_only_itself() -> None:
    group = MixedDialogue(group_member_max_bytes=200)
    group.enter("z", "t")
    answer = group.joined("", "t" * 300, instance="s0")
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert set(group.group.members) == {"z"}


def test_k45_members_know_one_assignor_together(group: MixedDialogue) -> None:
    first = group.joined(instance="s0", assignors=("range", "sticky")).member_id
    group.joined(instance="s1", assignors=("sticky",))
    assert dict(group.group.classic_support) == {"range": 1, "sticky": 2}
    refused = group.joined(instance="s2", assignors=("range",))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    group.leave((first, None))
    assert dict(group.group.classic_support) == {"sticky": 1}
    assert group.group.classic_members == 1


def test_k45_a_member_may_change_its_protocol_under_one_id(group: MixedDialogue) -> None:
    asked = group.joined().member_id
    group.joined(asked)
    assert group.member(asked).classic is not None
    assert group.enter(asked, "t").error_code == 0
    assert group.member(asked).classic is None
    assert group.group.classic_members == 0
    due = group.shard.session.deadlines.due_times()
    assert ConsumerSyncExpired(GROUP, asked) not in due
