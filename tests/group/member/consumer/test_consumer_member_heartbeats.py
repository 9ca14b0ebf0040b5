"""The content and the times of heartbeats of the KIP-848 member (L31, L32)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer.machine import ConsumerMemberState
from kohort.group.member.events import Polled, Subscribed
from kohort.values import replace
from tests.group.member.consumer.consumer_member import (
    INTERVAL_MS,
    MEMBER_ID,
    Stage,
    assignment,
    joining,
    reconciling,
    stable,
)

S = ConsumerMemberState
CONFIG = MemberConfig(
    group_id="g",
    group_instance_id="gate-7",
    max_poll_interval_ms=60_000,
    rack_id="r",
    server_assignor="range",
)


def said(stage: Stage) -> set[str]:
    """Return the optional fields that the pending heartbeat has."""
    request = stage.heartbeat
    fields = {
        "timeout": request.rebalance_timeout_ms != -1,
        "rack": request.rack_id is not None,
        "names": request.subscribed_topic_names is not None,
        "regex": request.subscribed_topic_regex is not None,
        "assignor": request.server_assignor is not None,
        "partitions": request.topic_partitions is not None,
    }
    return {name for name, is_there in fields.items() if is_there}


EVERYTHING = {"timeout", "rack", "names", "assignor", "partitions"}


def test_l32_the_first_poll_after_subscribe_joins() -> None:
    stage = Stage()
    stage.tell(Polled())
    assert stage.state() is S.UNSUBSCRIBED
    stage.tell(Subscribed(frozenset({"flights"})))
    assert stage.state() is S.UNSUBSCRIBED
    stage.tell(Polled())
    assert stage.state() is S.JOINING
    assert stage.looking_up


def test_l31_everything_when_joining_and_nothing_that_did_not_change_later() -> None:
    stage = joining(Stage(CONFIG))
    request = stage.heartbeat
    assert said(stage) == EVERYTHING
    assert (request.member_id, request.member_epoch) == (MEMBER_ID, 0)  # KIP-1082
    assert (request.rebalance_timeout_ms, request.topic_partitions) == (60_000, ())
    stage.answer(1, assignment(0))
    stage.called()
    assert said(stage) == {"partitions"}
    stage.answer(1)
    stage.wait(INTERVAL_MS)
    assert said(stage) == set()
    assert stage.heartbeat.instance_id == "gate-7"


@pytest.mark.parametrize(
    "fails",
    [
        lambda stage: stage.lose_answer(),
        lambda stage: stage.answer(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        lambda stage: stage.answer(code=ErrorCode.NOT_COORDINATOR),
        lambda stage: stage.answer(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_l31_everything_again_after_any_error(fails: object) -> None:
    assert callable(fails)
    stage = stable(0, stage=Stage(CONFIG))
    stage.wait(INTERVAL_MS)
    fails(stage)
    assert not stage.requests
    if stage.looking_up:
        stage.find()
    stage.wait(100)
    assert said(stage) == EVERYTHING
    assert stage.heartbeat.member_epoch == 1


def test_l31_one_heartbeat_at_a_time() -> None:
    stage = stable(0)
    stage.wait(INTERVAL_MS)
    assert len(stage.requests) == 1
    stage.tell(Subscribed(frozenset({"delays"})))
    stage.wait(3 * INTERVAL_MS)
    assert len(stage.requests) == 1
    stage.answer(1)
    assert said(stage) == {"names"}


def test_l31_the_interval_is_the_coordinators() -> None:
    stage = stable(0)
    stage.wait(INTERVAL_MS)
    stage.answer(1, interval_ms=700)
    assert stage.member.heartbeat_interval_ms == 700
    stage.wait(699)
    assert not stage.requests
    stage.wait(1)
    assert stage.requests


def test_l31_an_interval_of_nothing_is_not_taken_at_its_word() -> None:
    stage = stable(0)
    stage.wait(INTERVAL_MS)
    stage.answer(1, interval_ms=0)
    stage.wait(stage.config.heartbeat_interval_ms - 1)
    assert not stage.requests


def test_l31_a_changed_subscription_is_said_at_once_and_the_same_one_is_not() -> None:
    stage = stable(0)
    stage.tell(Subscribed(frozenset({"flights"})))
    assert not stage.requests
    stage.tell(Subscribed(frozenset({"flights", "delays"})))
    assert stage.heartbeat.subscribed_topic_names == ("delays", "flights")


def test_l31_k50_between_names_and_a_pattern() -> None:
    stage = stable(0)
    stage.tell(Subscribed(frozenset(), "fl.*"))
    assert (stage.heartbeat.subscribed_topic_names, stage.heartbeat.subscribed_topic_regex) == (
        (),
        "fl.*",
    )
    stage.answer(1)
    stage.tell(Subscribed(frozenset({"delays"})))
    assert stage.heartbeat.subscribed_topic_regex == ""
    stage.lose_answer()
    stage.find()
    stage.wait(100)
    # It must be reset: the coordinator may not have received it.
    assert stage.heartbeat.subscribed_topic_regex == ""


def test_l31_no_pattern_is_null_to_who_never_had_one() -> None:
    assert joining().heartbeat.subscribed_topic_regex is None


def test_l31_the_acknowledgement_waits_for_the_heartbeat_on_its_way() -> None:
    stage = reconciling(0)
    stage.wait(INTERVAL_MS)
    stage.called()
    stage.called()
    assert stage.state() is S.ACKNOWLEDGING
    assert len(stage.requests) == 1
    stage.answer(2)
    assert stage.state() is S.STABLE
    assert said(stage) == {"partitions"}


@pytest.mark.parametrize("calls", [0, 1])
def test_l31_heartbeats_go_on_during_a_call_of_a_minute(calls: int) -> None:
    """In the revocation, and between it and the assignment."""
    stage = reconciling(1, 2)
    for _ in range(calls):
        stage.called()
    for _ in range(10):
        stage.wait(INTERVAL_MS)
        stage.answer(2)
    assert stage.state() is S.RECONCILING
    stage.wait(INTERVAL_MS)
    assert stage.state() is S.LEAVING  # max.poll.interval.ms has passed, too


def test_l31_what_is_claimed_includes_what_was_given_and_not_taken_yet() -> None:
    """Otherwise the coordinator might assign them to others while the callback runs."""
    stage = reconciling(1, 2)
    stage.wait(INTERVAL_MS)
    (claimed,) = stage.heartbeat.topic_partitions or ()
    assert claimed.partitions == (0, 1, 2)
    stage.called()
    stage.answer(2)
    stage.wait(INTERVAL_MS)
    (claimed,) = stage.heartbeat.topic_partitions or ()
    assert claimed.partitions == (1, 2)


def test_l31_nothing_is_said_where_there_is_nobody_to_say_it() -> None:
    for state, stage in (
        (S.UNSUBSCRIBED, Stage()),
        (S.FATAL, stable(0)),
        (S.FENCED, stable(0)),
        (S.STALE, stable(0)),
    ):
        if state is S.STALE:
            while stage.state() is not S.STALE:
                stage.wait(INTERVAL_MS)
                if stage.state() is not S.STALE:
                    stage.answer(1)
            stage.answer(-1)
        elif state is not S.UNSUBSCRIBED:
            stage.wait(INTERVAL_MS)
            fenced = state is S.FENCED
            stage.answer(
                code=ErrorCode.FENCED_MEMBER_EPOCH if fenced else ErrorCode.INVALID_REQUEST
            )
        assert stage.state() is state
        stage.wait(600_000)
        assert not stage.requests
        assert stage.member.next_deadline() is None


def test_l31_beats_come_closer_together_after_a_change() -> None:
    """After a change a member's assignment is likely to change again soon."""
    stage = stable(0, stage=Stage(replace(CONFIG, first_heartbeat_part=8)))
    for part in (8, 4, 2, 1, 1):
        stage.wait(INTERVAL_MS // part - 1)
        assert not stage.requests
        stage.wait(1)
        stage.answer(1)
    stage.wait(INTERVAL_MS)
    stage.answer(2, assignment(0, 1))
    stage.called()
    stage.answer(2)  # acknowledged partitions are not reported again
    stage.wait(INTERVAL_MS // 8)
    stage.answer(2, assignment(0, 1))  # nor is an assignment received before
    stage.wait(INTERVAL_MS // 8)
    assert not stage.requests
    stage.wait(INTERVAL_MS // 8)
    assert stage.requests


def test_l31_the_shortest_interval_is_no_reason_to_beat_for_ever() -> None:
    stage = joining(Stage(replace(CONFIG, first_heartbeat_part=8)))
    stage.answer(1, assignment(0), interval_ms=1)
    stage.called()
    stage.answer(1, interval_ms=1)
    assert not stage.requests
