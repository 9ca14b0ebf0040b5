"""Static members, SyncGroup, Heartbeat and LeaveGroup, rule by rule (C30-C47), and reload."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.coordinator.events import RequestArrived, Tick
from kohort.group.coordinator.shard import Lifecycle, Shard
from kohort.group.events import Cause, MemberLeft
from kohort.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.wire.messages.offsets import OffsetFetchRequest
from tests.group.coordinator.dialogue import GROUP, Dialogue


def test_c30_the_old_holder_of_an_instance_id_is_fenced() -> None:
    talk = Dialogue()
    (old,) = talk.stable("s1")
    parked = talk.join(old, instance="s1")
    del talk.answers[parked]
    new = talk.answers[talk.join(instance="s1")].member_id
    assert talk.beat(old, 1, "s1") == ErrorCode.FENCED_INSTANCE_ID
    assert talk.beat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert new != old


def test_c30_its_parked_join_is_answered_fenced() -> None:
    talk = Dialogue()
    old, _a = talk.stable("s1", "a")
    parked = talk.join(old, instance="s1")
    assert parked not in talk.answers
    talk.join(instance="s1")
    assert talk.answers[parked].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_c31_it_comes_back_without_a_rebalance_and_the_log_knows() -> None:
    talk = Dialogue()
    a, old = talk.stable("a", "s1")
    answer = talk.answers[talk.join(instance="s1")]
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, a)
    assert talk.state == "Stable"
    talk.reload()
    assert talk.sync(answer.member_id, 1).assignment == old.encode()


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
def test_c31_a_leader_that_comes_back_does_not_assign_again(version: int, skips: bool) -> None:
    talk = Dialogue()
    old, _a = talk.stable("s1", "a")
    answer = talk.answers[talk.join(instance="s1", version=version)]
    assert answer.skip_assignment is skips
    assert answer.leader == (answer.member_id if skips else old)
    assert len(answer.members) == (2 if skips else 0)


def test_c32_another_assignor_means_a_rebalance() -> None:
    talk = Dialogue()
    both = (("range", b""), ("roundrobin", b""))
    _s, a = talk.stable("s1", "a", protocols=both)
    talk.join(instance="s1", protocols=both[1:])
    assert talk.state == "PreparingRebalance"
    assert talk.beat(a, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_c32_between_the_phases_it_means_one_too() -> None:
    talk = Dialogue()
    old, a = talk.stable("s1", "a")
    talk.join(old, instance="s1")
    talk.join(a)
    assert talk.state == "CompletingRebalance"
    talk.join(instance="s1")
    assert talk.state == "PreparingRebalance"


def test_c32_while_all_join_its_new_join_counts() -> None:
    talk = Dialogue()
    _old, a = talk.stable("s1", "a")
    first = talk.join(a, protocols=(("range", b"other"),))
    second = talk.join(instance="s1")
    assert len(talk.settle([first, second])) == 2


def test_c33_an_operator_removes_a_static_member_by_its_name() -> None:
    talk = Dialogue()
    talk.stable("s1", "a")
    result = talk.leave(("", "s1"), ("", "unknown"))
    codes = [member.error_code for member in result.members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert talk.state == "PreparingRebalance"


def test_c40_who_may_not_sync() -> None:
    talk = Dialogue()
    assert talk.sync("who", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    a, _s = talk.stable("a", "s1")
    assert talk.sync("who", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.sync(a, 0).error_code == ErrorCode.ILLEGAL_GENERATION
    fenced = talk.sync_token(a, 1, {}, group_instance_id="s1")
    assert talk.answers[fenced].error_code == ErrorCode.FENCED_INSTANCE_ID
    for field in ("protocol_type", "protocol_name"):
        other = talk.sync_token(a, 1, {}, **{field: "other"})
        assert talk.answers[other].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_c41_members_the_leader_forgets_get_nothing() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b")
    tokens = [talk.join(b, protocols=(("range", b"x"),)), talk.join(a)]
    generation = talk.answers[tokens[0]].generation_id
    waiting = talk.sync_token(b, generation, {})
    assert talk.sync(a, generation, **{a: b"all"}).assignment == b"all"
    assert talk.answers[waiting].assignment == b""
    assert talk.sync(b, generation).assignment == b""


def test_c41_a_sync_in_the_next_rebalance_is_sent_back() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b")
    talk.join(a)
    assert talk.sync(b, 1).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("missing", ["leader", "follower"])
def test_c42_who_does_not_sync_in_time_is_out(missing: str) -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b", session=60_000, rebalance=5_000)
    again = {"session": 60_000, "rebalance": 5_000}
    talk.join(a, **again)
    talk.join(b, **again)
    assert talk.state == "CompletingRebalance"
    present, absent = (b, a) if missing == "leader" else (a, b)
    talk.sync_token(present, 2, {})
    talk.advance(5_000)
    left = [event for event in talk.observed if isinstance(event, MemberLeft)]
    assert [(event.member, event.cause) for event in left] == [(absent, Cause.SYNC_TIMED_OUT)]
    assert talk.state == "PreparingRebalance"


def test_c43_every_session_starts_anew_with_the_assignment() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b")
    talk.advance(9_000)
    talk.join(a)
    talk.join(b)
    talk.advance(9_000)
    talk.sync_token(b, 2, {})
    talk.sync(a, 2)
    talk.advance(9_000)
    assert talk.beat(a, 2) == talk.beat(b, 2) == ErrorCode.NONE


def test_c44_heartbeats() -> None:
    talk = Dialogue()
    assert talk.beat("who", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    a, b = talk.stable("a", "b")
    assert talk.beat(a, 1) == ErrorCode.NONE
    assert talk.beat(a, 2) == ErrorCode.ILLEGAL_GENERATION
    assert talk.beat("who", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    talk.join(a)
    assert talk.beat(b, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    talk.join(b)
    assert talk.state == "CompletingRebalance"
    assert talk.beat(b, 2) == ErrorCode.NONE
    talk.leave((a, None), (b, None))
    talk.advance(0)
    assert talk.beat(b, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_c46_silence_ends_a_membership() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b")
    talk.advance(6_000)
    talk.beat(a, 1)
    talk.advance(4_000)
    assert talk.state == "PreparingRebalance"
    left = [event for event in talk.observed if isinstance(event, MemberLeft)]
    assert [(event.member, event.cause) for event in left] == [(b, Cause.SESSION_EXPIRED)]
    assert talk.answers[talk.join(a)].generation_id == 2


def test_c47_leaving_one_by_one_and_all_at_once() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b")
    pending = talk.new_id()
    result = talk.leave((a, None), ("who", None), (pending, None), (b, "x"))
    assert [member.error_code for member in result.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert result.error_code == ErrorCode.NONE


def test_c47_a_static_name_and_another_members_id_take_nobody_out() -> None:
    talk = Dialogue()
    _s, a = talk.stable("s1", "a")
    assert talk.leave((a, "s1")).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert talk.state == "Stable"
    assert talk.leave(("", "s1"), (a, None)).members[1].error_code == ErrorCode.NONE
    assert talk.state == "Empty"  # one rebalance for both


def test_c47_of_no_group_each_is_unknown_and_the_call_is_not() -> None:
    talk = Dialogue()
    result = talk.leave(("who", None), ("", "s1"))
    assert [m.error_code for m in result.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert result.error_code == ErrorCode.NONE


def test_c47_before_version_3_the_error_is_that_of_the_call() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a")
    request = LeaveGroupRequest(group_id=GROUP, member_id="who")
    assert talk.get(request, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.get(LeaveGroupRequest(group_id=GROUP, member_id=a), 2).error_code == 0
    assert talk.state == "Empty"


def test_c57_c58_c59_describe_list_delete() -> None:
    talk = Dialogue()
    assert talk.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (talk.describe(5).error_code, talk.describe(5).group_state) == (0, "Dead")
    (a,) = talk.stable("a")
    group = talk.describe()
    assert (group.group_state, group.protocol_data) == ("Stable", "range")
    assert [(m.member_metadata, m.member_assignment) for m in group.members] == [(b"m", a.encode())]

    delete = DeleteGroupsRequest(groups_names=(GROUP, "other"))
    codes = [result.error_code for result in talk.get(delete).results]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    for states, found in (((), 1), (("stable",), 1), (("Empty",), 0)):
        assert len(talk.get(ListGroupsRequest(states_filter=states)).groups) == found
    assert not talk.get(ListGroupsRequest(types_filter=("consumer",))).groups

    talk.leave((a, None))
    assert talk.get(delete).results[0].error_code == ErrorCode.NONE
    assert talk.state == "Dead"
    talk.reload()
    assert talk.state == "Dead"


def test_c72_a_loaded_group_is_stable_and_every_session_starts_anew() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b")
    talk.advance(9_000)
    talk.reload()
    talk.advance(9_000)
    assert talk.beat(a, 1) == talk.beat(b, 1) == ErrorCode.NONE
    assert talk.sync(b, 1).assignment == b.encode()
    talk.reload()
    talk.advance(10_000)
    assert talk.beat(a, 1) == talk.beat(b, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_c72_after_a_load_the_whole_list_of_assignors_counts_as_news() -> None:
    talk = Dialogue()
    both = (("range", b""), ("roundrobin", b""))
    _a, b = talk.stable("a", "b", protocols=both)
    talk.reload()
    talk.join(b, protocols=both)
    assert talk.state == "PreparingRebalance"


def test_c73_who_is_parked_is_sent_to_the_new_coordinator() -> None:
    talk = Dialogue()
    a, _b = talk.stable("a", "b")
    joining = talk.join(a)
    talk.reload()
    assert talk.answers[joining].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("lifecycle", [Lifecycle.DOWN, Lifecycle.CATCH_UP])
def test_c3_a_shard_that_is_not_ready_says_so(lifecycle: Lifecycle) -> None:
    shard = Shard(Dialogue().config)
    if lifecycle is Lifecycle.CATCH_UP:
        shard.load_started()
    down = lifecycle is Lifecycle.DOWN
    expected = ErrorCode.NOT_COORDINATOR if down else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    join = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=1, member_id="", protocol_type="", protocols=()
    )
    sync = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="", assignments=())
    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="")
    for request, code in (
        (join, expected),
        (sync, expected),  # C45
        (beat, expected if down else ErrorCode.NONE),  # C44: accepted without a check
        (OffsetFetchRequest(group_id=GROUP), expected),
    ):
        arrived = RequestArrived(token=1, request=request, version=3)
        (reply,) = shard.decide(arrived, 0).replies
        assert reply.response.error_code == code  # type: ignore[attr-defined]  # all four have one
    (listed,) = shard.decide(
        RequestArrived(token=1, request=ListGroupsRequest(), version=5), 0
    ).replies
    assert listed.response.groups == ()  # type: ignore[attr-defined]  # C59: skipped silently
    describe = RequestArrived(token=1, request=DescribeGroupsRequest(groups=(GROUP,)), version=6)
    assert shard.decide(describe, 0).replies[0].response.groups[0].error_code == expected  # type: ignore[attr-defined]  # this one has
    assert shard.decide(Tick(), 10**9).session == shard.session
