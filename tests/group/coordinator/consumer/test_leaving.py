"""Members that leave, time out, or return with their instance id (K30 to K32)."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.errors import ErrorCode
from kohort.group.events import Cause, MemberLeft
from kohort.wire.messages.membership import LeaveGroupRequest, MemberIdentity
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue
from tests.group.coordinator.dialogue import GROUP

JOIN: dict[str, Any] = {
    "rebalance_timeout_ms": 30_000,
    "subscribed_topic_names": ("t",),
    "held": {},
}


@pytest.fixture
def group() -> ConsumerDialogue:
    dialogue = ConsumerDialogue(group_consumer_session_timeout_ms=10_000)
    dialogue.topics(t=6)
    return dialogue


def causes(group: ConsumerDialogue) -> list[tuple[str, Cause]]:
    return [(fact.member, fact.cause) for fact in group.observed if isinstance(fact, MemberLeft)]


def test_k31_who_leaves_frees_its_partitions(group: ConsumerDialogue) -> None:
    group.settled("a", "b")
    epoch = group.group.epoch
    answer = group.heartbeat("a", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", -1)
    assert group.group.epoch == epoch + 1
    assert group.told(group.heartbeat("b", epoch)) == {"t": set(range(6))}
    assert causes(group) == [("a", Cause.MEMBER_LEFT)]


def test_k31_tombstones_come_in_the_order_that_kafka_can_read(group: ConsumerDialogue) -> None:
    group.settled("a", "b")
    size = len(group.log)
    group.heartbeat("a", -1)
    kinds = [key[1] for key, _ in group.log[size:]]
    assert kinds == [8, 7, 5, 3]


def test_k15_the_last_member_leaves_an_empty_group(group: ConsumerDialogue) -> None:
    group.settled("a")
    group.heartbeat("a", -1)
    described = group.describe_group()
    assert (described.group_state, described.group_epoch, described.members) == ("Empty", 3, ())
    assert dict(group.group.target) == {}


def test_k30_silence_ends_a_membership(group: ConsumerDialogue) -> None:
    group.settled("a", "b")
    epoch = group.group.epoch
    group.advance(9_999)
    group.heartbeat("b", epoch)
    group.advance(1)
    assert list(group.group.members) == ["b"]
    assert causes(group) == [("a", Cause.SESSION_EXPIRED)]
    assert group.refused("a", epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    group.advance(9_998)
    assert list(group.group.members) == ["b"]


def test_k30_an_erroneous_heartbeat_is_no_sign_of_life(group: ConsumerDialogue) -> None:
    group.settled("a")
    group.advance(9_999)
    group.refused("a", 77)
    group.advance(1)
    assert causes(group) == [("a", Cause.SESSION_EXPIRED)]


def test_k30_who_does_not_give_up_in_time_is_removed(group: ConsumerDialogue) -> None:
    group.settled("a", rebalance_timeout_ms=5_000)
    group.enter("b", "t")
    group.heartbeat("a", 2)
    group.advance(4_999)
    group.heartbeat("a", 2)
    group.heartbeat("b", 3)
    assert sorted(group.group.members) == ["a", "b"]
    group.advance(1)
    assert causes(group) == [("a", Cause.REVOCATION_TIMED_OUT)]
    assert group.told(group.heartbeat("b", 3)) == {"t": set(range(6))}


def test_k30_who_gives_up_in_time_is_not(group: ConsumerDialogue) -> None:
    group.settled("a", rebalance_timeout_ms=5_000)
    group.enter("b", "t")
    group.heartbeat("a", 2)
    group.heartbeat("a", 2, held=group.target("a"))
    group.advance(6_000)
    assert causes(group) == []


def test_k30_times_start_anew_after_a_load(group: ConsumerDialogue) -> None:
    group.settled("a", rebalance_timeout_ms=5_000)
    group.enter("b", "t")
    group.heartbeat("a", 2)
    group.advance(4_000)
    group.reload()
    group.advance(4_999)
    assert causes(group) == []
    group.advance(1)
    assert causes(group) == [("a", Cause.REVOCATION_TIMED_OUT)]
    group.advance(5_000)
    assert causes(group)[1:] == [("b", Cause.SESSION_EXPIRED)]


# ----------------------------------------------------------------------------- static members


def test_k32_an_instance_id_in_use_is_not_given_away(group: ConsumerDialogue) -> None:
    """The opposite of the classic protocol, where the new member replaces the old one (C30)."""
    group.settled("a", instance_id="i")
    assert group.refused("b", 0, instance_id="i", **JOIN) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert list(group.group.members) == ["a"]


@pytest.mark.parametrize(
    ("member_id", "epoch", "instance_id", "code"),
    [
        ("a", 2, "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", -1, "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", 2, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("b", -1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("b", -2, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", 9, "i", ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_k32_a_static_member_is_who_it_says(
    group: ConsumerDialogue, member_id: str, epoch: int, instance_id: str, code: ErrorCode
) -> None:
    group.settled("a", instance_id="i")
    assert group.refused(member_id, epoch, instance_id=instance_id) is code


def test_k31_k32_who_says_it_will_be_back_finds_everything_in_place(
    group: ConsumerDialogue,
) -> None:
    group.settled("a", instance_id="i")
    group.enter("b", "t")
    group.converge("a", "b")
    had, epoch = group.has("a"), group.group.epoch
    answer = group.heartbeat("a", -2, instance_id="i")
    assert (answer.member_id, answer.member_epoch) == ("a", -2)
    assert (group.group.epoch, group.member("a").epoch) == (epoch, -2)
    # no other member gets its partitions in the meantime
    assert group.heartbeat("b", epoch).assignment is None
    answer = group.enter("a2", "t", instance_id="i")
    assert (answer.member_epoch, group.told(answer)) == (epoch, had)
    assert (group.group.epoch, sorted(group.group.members)) == (epoch, ["a2", "b"])
    assert group.refused("a", -2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_k32_coming_back_with_another_subscription_is_a_new_epoch(
    group: ConsumerDialogue,
) -> None:
    group.topics(t=6, u=1)
    group.settled("a", instance_id="i")
    group.heartbeat("a", -2, instance_id="i")
    answer = group.enter("a2", "t", "u", instance_id="i")
    assert answer.member_epoch == 3
    assert group.told(answer) == {"t": set(range(6)), "u": {0}}


def test_k31_who_does_not_come_back_is_removed(group: ConsumerDialogue) -> None:
    group.settled("a", instance_id="i")
    group.advance(1_000)
    group.heartbeat("a", -2, instance_id="i")
    group.advance(9_000)
    assert causes(group) == [("a", Cause.SESSION_EXPIRED)]
    assert group.enter("b", "t", instance_id="i").error_code == 0


def test_k31_a_static_member_may_leave_for_good(group: ConsumerDialogue) -> None:
    group.settled("a", instance_id="i")
    group.heartbeat("a", -1, instance_id="i")
    assert dict(group.group.members) == {}
    assert dict(group.group.static) == {}


def test_k31_what_was_to_be_given_up_is_forgotten_with_who_had_it(group: ConsumerDialogue) -> None:
    group.settled("a", instance_id="i")
    group.enter("b", "t")
    group.heartbeat("a", 2)
    assert group.member("a").revoking
    group.heartbeat("a", -2, instance_id="i")
    assert not group.member("a").revoking
    assert group.told(group.heartbeat("b", 3)) == group.target("b")
    answer = group.enter("a2", "t", instance_id="i")
    assert group.told(answer) == group.target("a2")


def test_k32_a_member_that_is_replaced_while_a_target_is_made(group: ConsumerDialogue) -> None:
    """The job knows it by its old id; its replacement gets its partitions."""
    group.settled("a", instance_id="i")
    group.holds_jobs = True
    token = group.beat_token("b", 0, **JOIN)
    group.heartbeat("a", -2, instance_id="i")
    group.heartbeat("a2", 0, instance_id="i", **JOIN)
    group.holds_jobs = False
    group.do_jobs()
    assert group.answers[token].error_code == 0
    group.converge("a2", "b")
    assert {len(group.has(each)["t"]) for each in ("a2", "b")} == {3}


# ----------------------------------------------------------------------------- the classic API


def test_k31_an_administrator_removes_members_by_instance_id(group: ConsumerDialogue) -> None:
    group.settled("a", instance_id="i")
    group.enter("b", "t")
    identities = (
        MemberIdentity(member_id="", group_instance_id="i"),
        MemberIdentity(member_id="x", group_instance_id=None),
        MemberIdentity(member_id="x", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
    )
    answer = group.get(LeaveGroupRequest(group_id=GROUP, members=identities))
    assert [each.error_code for each in answer.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert list(group.group.members) == ["b"]


def test_k45_the_classic_apis_know_no_member(group: ConsumerDialogue) -> None:
    group.settled("a")
    assert group.beat("a", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.sync("a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
