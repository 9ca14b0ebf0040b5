"""The KIP-848 member can leave at any moment (L30, L35, L37, KIP-1092)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode, LocalProtocolError
from kohort.group.events import MemberStateChanged, Ownership
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer.machine import ConsumerMemberState
from kohort.group.member.events import (
    Closing,
    CoordinatorLost,
    GroupMembershipOperation,
    Polled,
    Subscribed,
    Unsubscribed,
)
from tests.group.member.consumer.consumer_member import (
    INTERVAL_MS,
    Stage,
    assignment,
    flights,
    joining,
    reconciling,
    stable,
)

S = ConsumerMemberState
ASSIGNED, REVOKED, LOST = Ownership.ASSIGNED, Ownership.REVOKED, Ownership.LOST
STATIC = MemberConfig(group_id="g", group_instance_id="gate-7", max_poll_interval_ms=60_000)
TOPICS = frozenset({"flights"})


def good_bye(stage: Stage) -> int:
    """Answer the pending leave request; return its epoch."""
    epoch = stage.heartbeat.member_epoch
    assert epoch < 0
    stage.answer(epoch)
    return epoch


@pytest.mark.parametrize("event", [Unsubscribed(), Closing()])
def test_l30_what_is_owned_is_given_up_before_the_good_bye(event: Closing | Unsubscribed) -> None:
    stage = stable(0, 1)
    stage.tell(event)
    assert stage.state() is S.PREPARE_LEAVING
    assert not stage.requests
    stage.called()
    assert stage.state() is S.LEAVING
    assert stage.words == [(REVOKED, flights(0, 1))]
    assert good_bye(stage) == -1
    assert stage.state() is S.UNSUBSCRIBED
    assert stage.member.is_closed is isinstance(event, Closing)
    assert stage.member.next_deadline() is None


def test_l31_heartbeats_go_on_until_the_good_bye() -> None:
    stage = stable(0)
    stage.tell(Unsubscribed())
    stage.wait(INTERVAL_MS)
    assert stage.heartbeat.member_epoch == 1
    stage.called()
    assert len(stage.requests) == 1  # the leave request waits: one request at a time
    stage.answer(1)
    assert good_bye(stage) == -1


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("calls", [0, 1])
def test_l30_leaving_in_the_middle_of_a_reconciliation(calls: int, closes: bool) -> None:
    """The pending callback ends first; then the application's partitions are revoked."""
    stage = reconciling(1, 2)
    for _ in range(calls):
        stage.called()
    stage.tell(Closing() if closes else Unsubscribed())
    while stage.callbacks:
        stage.called()
    assert stage.words[-1] == (REVOKED, flights(1) if calls == 0 else flights(1, 2))
    assert stage.believes == set()
    good_bye(stage)
    assert stage.state() is S.UNSUBSCRIBED


@pytest.mark.parametrize("closes", [False, True])
def test_l30_leaving_before_the_first_answer(closes: bool) -> None:
    stage = joining()
    stage.tell(Closing() if closes else Unsubscribed())
    assert stage.state() is S.LEAVING
    stage.answer(1, assignment(0))
    assert not stage.callbacks
    good_bye(stage)
    assert stage.state() is S.UNSUBSCRIBED


def test_l30_who_was_never_heard_says_no_good_bye() -> None:
    stage = Stage()
    stage.tell(Subscribed(TOPICS))
    stage.tell(Polled())
    stage.tell(Closing())
    assert stage.member.is_closed


@pytest.mark.parametrize("closes", [False, True])
def test_l30_leaving_while_fenced(closes: bool) -> None:
    stage = stable(0)
    stage.wait(INTERVAL_MS)
    stage.answer(code=ErrorCode.FENCED_MEMBER_EPOCH)
    stage.tell(Closing() if closes else Unsubscribed())
    assert not stage.member.is_closed
    stage.called()
    assert stage.words == [(LOST, flights(0))]
    assert stage.state() is S.UNSUBSCRIBED
    assert stage.member.is_closed is closes
    assert not stage.requests


def test_l36_closing_a_member_that_failed() -> None:
    stage = stable(0)
    stage.wait(INTERVAL_MS)
    stage.answer(code=ErrorCode.INVALID_REQUEST)
    stage.tell(Closing())
    assert not stage.member.is_closed
    stage.called()
    assert stage.member.is_closed


@pytest.mark.parametrize("lost", ["answer", "coordinator", "refused"])
def test_l37_the_good_bye_is_said_once_whatever_becomes_of_it(lost: str) -> None:
    stage = stable()
    stage.tell(Closing())
    if lost == "answer":
        stage.lose_answer()
    elif lost == "coordinator":
        stage.tell(CoordinatorLost())
    else:
        stage.answer(code=ErrorCode.NOT_COORDINATOR)
    assert stage.member.is_closed
    assert stage.state() is S.UNSUBSCRIBED
    assert not stage.looking_up


def test_l37_without_a_coordinator_there_is_no_good_bye() -> None:
    stage = stable(0)
    stage.tell(CoordinatorLost())
    stage.tell(Closing())
    stage.called()
    assert stage.member.is_closed
    assert not stage.requests


def test_l30_leaving_and_coming_back() -> None:
    stage = stable(0)
    stage.tell(Unsubscribed())
    stage.tell(Subscribed(TOPICS))
    stage.called()
    good_bye(stage)
    assert stage.state() is S.UNSUBSCRIBED
    stage.tell(Polled())
    assert stage.state() is S.JOINING
    assert stage.heartbeat.member_epoch == 0


def test_l30_closed_is_closed() -> None:
    stage = stable()
    stage.tell(Closing())
    with pytest.raises(LocalProtocolError):
        stage.tell(Subscribed(TOPICS))
    good_bye(stage)
    stage.tell(Polled())
    assert stage.state() is S.UNSUBSCRIBED
    stage.tell(Closing())
    assert stage.member.is_closed


EPOCHS = {
    (None, GroupMembershipOperation.DEFAULT): -1,
    (None, GroupMembershipOperation.LEAVE_GROUP): -1,
    (None, GroupMembershipOperation.REMAIN_IN_GROUP): None,
    ("gate-7", GroupMembershipOperation.DEFAULT): -2,
    ("gate-7", GroupMembershipOperation.LEAVE_GROUP): -1,
    ("gate-7", GroupMembershipOperation.REMAIN_IN_GROUP): -2,
}


@pytest.mark.parametrize(("how", "epoch"), EPOCHS.items())
def test_l39_what_closing_says(
    how: tuple[str | None, GroupMembershipOperation], epoch: int | None
) -> None:
    """KIP-1092."""
    instance, operation = how
    stage = stable(stage=Stage(MemberConfig(group_id="g", group_instance_id=instance)))
    stage.tell(Closing(operation))
    assert (good_bye(stage) if stage.requests else None) == epoch
    assert stage.member.is_closed


# -------------------------------------------------------------------------- an idle application


@pytest.mark.parametrize(("config", "epoch"), [(None, -1), (STATIC, -2)])
def test_l35_an_application_that_does_not_poll_is_taken_out(
    config: MemberConfig | None, epoch: int
) -> None:
    stage = stable(0, 1, stage=Stage(config))
    stage.wait(59_000)
    stage.answer(1)
    stage.wait(1_000)
    assert stage.state() is S.STALE
    assert stage.member.generation_id == -1
    assert stage.heartbeat.member_epoch == epoch
    entered = [each for each in stage.observed if isinstance(each, MemberStateChanged)][-1]
    assert (entered.after, "max.poll.interval.ms" in entered.reason) == ("STALE", True)
    assert [callback.change for callback in stage.callbacks] == [LOST]
    stage.answer(epoch)
    stage.wait(600_000)
    assert not stage.requests
    stage.tell(Polled())
    assert stage.state() is S.STALE  # it does not know yet which partitions it lost
    stage.called()
    assert stage.state() is S.JOINING
    assert stage.heartbeat.member_epoch == 0


def test_l35_a_poll_in_time_keeps_it_in() -> None:
    stage = stable(0)
    for _ in range(5):
        stage.wait(50_000)
        stage.answer(1)
        stage.tell(Polled())
    assert stage.state() is S.STABLE


def test_l35_stale_in_the_middle_of_a_call() -> None:
    stage = reconciling(1, 2)
    stage.called()
    stage.wait(INTERVAL_MS)
    stage.wait(60_000)
    assert stage.state() is S.LEAVING  # a heartbeat is pending, one at a time
    stage.answer(2)
    assert stage.state() is S.STALE
    stage.called()
    stage.called()
    assert stage.words[-2:] == [(ASSIGNED, flights(2)), (LOST, flights(1, 2))]
    assert stage.state() is S.JOINING
    assert len(stage.requests) == 1
    good_bye(stage)
    assert stage.heartbeat.member_epoch == 0


def test_l35_stale_without_a_coordinator() -> None:
    stage = stable(0)
    stage.tell(CoordinatorLost())
    stage.wait(60_000)
    assert stage.state() is S.STALE
    stage.called()
    assert stage.state() is S.JOINING


def test_l35_stale_and_unsubscribed_or_closed() -> None:
    for event in (Unsubscribed(), Closing()):
        stage = stable(0)
        stage.wait(60_000)
        stage.answer(1)
        assert stage.state() is S.STALE
        stage.tell(event)
        stage.called()
        stage.tell(Polled())
        assert stage.state() is S.STALE
        assert stage.member.is_closed is isinstance(event, Closing)
        if not stage.member.is_closed:
            stage.tell(Subscribed(TOPICS))
            stage.tell(Polled())
            assert stage.state() is S.JOINING


@pytest.mark.parametrize("goes", [Closing(), Unsubscribed()])
def test_l31_who_is_about_to_leave_subscribes_to_nothing_else_first(
    goes: Closing | Unsubscribed,
) -> None:
    """A short-lived epoch: a classic member of the group would miss it, and lose its partitions."""
    stage = stable(0)
    stage.tell(goes)
    assert stage.state() is S.PREPARE_LEAVING
    stage.wait(INTERVAL_MS)
    request = stage.heartbeat
    assert request.member_epoch == 1
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (None, None)
    stage.lose_answer()
    stage.find()
    stage.wait(1_000)
    assert stage.heartbeat.subscribed_topic_names is None
