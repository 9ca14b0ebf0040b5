"""JoinGroup, rule by rule (C10-C26)."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.errors import ErrorCode
from kohort.group.events import Cause, MemberLeft, RebalanceStarted
from tests.group.coordinator.dialogue import Dialogue


@pytest.mark.parametrize("session", [5_999, 1_800_001])
def test_c10_a_session_timeout_out_of_bounds_is_refused(session: int) -> None:
    talk = Dialogue()
    answer = talk.answers[talk.join(session=session)]
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert talk.state == "Dead"


def test_c4_an_empty_group_id_is_refused() -> None:
    talk = Dialogue()
    assert talk.answers[talk.join(group_id="")].error_code == ErrorCode.INVALID_GROUP_ID


def test_c11_a_member_of_a_group_that_does_not_exist_is_unknown() -> None:
    talk = Dialogue()
    assert talk.answers[talk.join("who")].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_c11_the_first_join_makes_the_group_in_the_log() -> None:
    talk = Dialogue()
    talk.join()
    assert talk.state == "Empty"
    talk.reload()
    assert talk.state == "Empty"


@pytest.mark.parametrize(
    "more", [{"protocol_type": "connect"}, {"protocols": (("roundrobin", b""),)}, {"protocols": ()}]
)
def test_c13_no_assignor_in_common_is_refused(more: dict[str, Any]) -> None:
    talk = Dialogue()
    talk.stable("a")
    assert talk.answers[talk.join(**more)].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("more", [{"protocol_type": ""}, {"protocols": ()}])
def test_c13_the_first_member_needs_a_type_and_an_assignor(more: dict[str, Any]) -> None:
    talk = Dialogue()
    assert talk.answers[talk.join(**more)].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_c14_a_full_group_refuses_new_members_but_not_its_own() -> None:
    talk = Dialogue(group_max_size=2)
    a, _b = talk.stable("a", "b")
    answer = talk.answers[talk.join(version=3)]
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    token = talk.join(a, protocols=(("range", b"other"),))
    assert token not in talk.answers  # parked: the member may stay


def test_c14_in_a_rebalance_the_first_to_come_may_stay() -> None:
    talk = Dialogue()
    a, b, c = talk.stable("a", "b", "c")
    talk.reload(group_max_size=2)
    assert talk.state == "PreparingRebalance"
    first, second, third = talk.join(a), talk.join(b), talk.join(c)
    assert talk.answers[third].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(talk.settle([first, second])) == 2


def test_c15_a_dynamic_member_comes_back_with_the_id_it_is_told() -> None:
    talk = Dialogue()
    answer = talk.answers[talk.join(client_id="north")]
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("north-")
    token = talk.join(answer.member_id)
    talk.advance(200)
    assert talk.answers[token].error_code == ErrorCode.NONE


def test_c15_before_version_4_there_is_no_second_round() -> None:
    talk = Dialogue()
    token = talk.join(version=3)
    talk.advance(200)
    assert talk.answers[token].error_code == ErrorCode.NONE


def test_c15_an_id_that_does_not_come_back_is_forgotten_with_its_session() -> None:
    talk = Dialogue()
    member_id = talk.new_id(session=7_000)
    talk.advance(6_999)
    assert member_id in talk.shard.session.group(talk.shard.log, "g").pending
    talk.advance(1)
    assert talk.answers[talk.join(member_id)].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_c16_the_group_waits_for_an_id_that_was_given_out() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a")
    b = talk.new_id()
    token = talk.join(a)
    assert token not in talk.answers
    other = talk.join(b)
    assert talk.settle([token, other])


def test_c16_but_only_until_its_session_is_over() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a")
    talk.new_id(session=7_000)
    token = talk.join(a)
    talk.advance(7_000)
    assert talk.answers[token].error_code == ErrorCode.NONE


def test_c17_the_first_join_of_a_member_is_parked_for_five_minutes_at_most() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a", rebalance=1_000_000)
    token = talk.join(version=3)
    for _ in range(59):
        talk.advance(5_000)
        assert talk.beat(a, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert token not in talk.answers
    talk.advance(5_000)
    answer = talk.answers[token]
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_c17_a_member_whose_join_is_parked_counts_as_alive() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b")
    token = talk.join(a, protocols=(("range", b"other"),))
    for _ in range(5):
        talk.advance(5_000)
        talk.beat(b, 1)
    assert token not in talk.answers
    assert not [event for event in talk.observed if isinstance(event, MemberLeft)]


def test_c18_strangers_are_told_apart() -> None:
    talk = Dialogue()
    talk.stable("s1", "a")
    assert talk.answers[talk.join("who")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.answers[talk.join("who", instance="x")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.answers[talk.join("who", instance="s1")].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_c19_a_follower_that_says_nothing_new_is_told_the_generation() -> None:
    talk = Dialogue()
    _a, b = talk.stable("a", "b")
    answer = talk.answers[talk.join(b)]
    assert (answer.error_code, answer.generation_id, answer.members) == (0, 1, ())
    assert talk.state == "Stable"


def test_c19_the_leader_always_gets_its_rebalance() -> None:
    talk = Dialogue()
    a, _b = talk.stable("a", "b")
    talk.join(a, reason="topics changed")
    started = [event for event in talk.observed if isinstance(event, RebalanceStarted)][-1]
    assert (started.cause, started.member) == (Cause.LEADER_REJOINED, a)
    assert started.reason == "topics changed"
    assert talk.state == "PreparingRebalance"


def test_c19_between_the_phases_the_leader_is_told_the_members_again() -> None:
    talk = Dialogue()
    a = talk.new_id()
    talk.join(a)
    talk.advance(200)
    assert talk.state == "CompletingRebalance"
    assert len(talk.answers[talk.join(a)].members) == 1
    talk.join(a, protocols=(("range", b"other"),))
    assert talk.state == "CompletingRebalance"
    assert talk.shard.session.group(talk.shard.log, "g").generation == 2


def test_c19_a_known_id_in_an_empty_group_is_unknown() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a")
    talk.leave((a, None))
    assert talk.state == "Empty"
    assert talk.answers[talk.join(a)].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_c20_the_first_rebalance_waits_and_is_extended_while_members_come() -> None:
    talk = Dialogue(group_initial_rebalance_delay_ms=3_000)
    first = talk.join(version=3, rebalance=10_000)
    talk.advance(2_000)
    second = talk.join(version=3, rebalance=10_000)
    talk.advance(1_000)
    assert first not in talk.answers  # extended, because the second one joined
    talk.advance(2_999)
    assert first not in talk.answers
    talk.advance(1)
    assert talk.settle([first, second])


def test_c20_but_not_beyond_the_rebalance_timeout() -> None:
    talk = Dialogue(group_initial_rebalance_delay_ms=3_000)
    first = talk.join(version=3, rebalance=5_000)
    for _ in range(4):
        talk.advance(1_000)
        talk.join(version=3, rebalance=5_000)
    assert first not in talk.answers
    talk.advance(1_000)
    assert talk.answers[first].error_code == ErrorCode.NONE


def test_c21_who_does_not_join_again_is_out_after_the_longest_rebalance_timeout() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b", session=60_000, rebalance=20_000)
    token = talk.join(a, session=60_000, rebalance=5_000)
    talk.advance(19_999)
    assert token not in talk.answers
    talk.advance(1)
    assert [member.member_id for member in talk.answers[token].members] == [a]
    left = [event for event in talk.observed if isinstance(event, MemberLeft)]
    assert [(event.member, event.cause) for event in left] == [(b, Cause.JOIN_TIMED_OUT)]


def test_c21_static_members_are_kept_and_c22_another_one_leads() -> None:
    talk = Dialogue()
    _s, a = talk.stable("s1", "a", session=60_000)
    token = talk.join(a, session=60_000, protocols=(("range", b"other"),))
    talk.advance(30_000)
    answer = talk.answers[token]
    assert answer.leader == a
    assert len(answer.members) == 2


def test_c22_if_nobody_is_there_the_group_waits_again() -> None:
    talk = Dialogue()
    s1, a = talk.stable("s1", "a", session=60_000)
    talk.leave((a, None))
    assert talk.state == "PreparingRebalance"
    talk.advance(30_000)
    assert talk.state == "PreparingRebalance"
    assert talk.answers[talk.join(s1, instance="s1", session=60_000)].generation_id == 2


def test_c23_the_last_one_to_leave_makes_an_empty_generation_in_the_log() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a")
    talk.leave((a, None))
    assert talk.state == "Empty"
    assert talk.shard.log.groups["g"].generation == 2
    talk.reload()
    assert talk.state == "Empty"


def test_c24_each_member_votes_for_the_first_of_its_list_that_all_know() -> None:
    talk = Dialogue(group_initial_rebalance_delay_ms=100)
    lists = ["xrs", "rs", "sr", "yrs"]
    tokens = [
        talk.join(version=3, protocols=[(name, b"") for name in names]) for names in lists[1:3]
    ]
    tokens += [talk.join(version=3, protocols=[(n, b"") for n in "xrs"])]
    talk.advance(1_000)
    assert talk.answers[tokens[0]].protocol_name == "r"


def test_c24_a_tie_goes_to_the_name_that_sorts_first() -> None:
    for lists in (("sr", "rs"), ("rs", "sr")):
        talk = Dialogue()
        first, _ = (
            talk.join(version=3, protocols=[(name, b"") for name in names]) for names in lists
        )
        talk.advance(1_000)
        assert talk.answers[first].protocol_name == "r"


def test_c25_of_several_the_id_that_sorts_first_leads() -> None:
    talk = Dialogue()
    z, b, a, c = talk.stable("z", "b", "a", "c")
    talk.leave((z, None))
    tokens = [talk.join(member_id) for member_id in (c, b, a)]
    assert {talk.answers[token].leader for token in tokens} == {a}


def test_c25_when_the_leader_leaves_another_one_leads() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b")
    talk.leave((a, None))
    answer = talk.answers[talk.join(b)]
    assert (answer.leader, len(answer.members)) == (b, 1)


def test_c26_a_new_rebalance_sends_back_who_waits_for_an_assignment() -> None:
    talk = Dialogue()
    a, b = talk.stable("a", "b")
    first, second = talk.join(a), talk.join(b)
    generation = talk.answers[first].generation_id
    waiting = talk.sync_token(b, generation, {})
    assert talk.answers[second].generation_id == generation
    talk.join(version=3)
    assert talk.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
