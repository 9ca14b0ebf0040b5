"""Leaving: unsubscribe, close, removal, and an application that does not poll."""

from __future__ import annotations

from kohort.errors import KafkaError, error_name
from kohort.group.member.consumer import client_assignors, rhythm
from kohort.group.member.consumer.heartbeat_fields import leave_request
from kohort.group.member.consumer.session import (
    NOT_JOINED,
    ConsumerMemberDecision,
    ConsumerMemberState,
)
from kohort.group.member.events import POLL_OVERDUE, GroupMembershipOperation, PollOverdue
from kohort.group.member.session import revoked_or_lost
from kohort.values import replace
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse

LEAVE_EPOCH = -1
LEAVE_FOR_NOW_EPOCH = -2

_NOT_POLLED = "the application did not poll within max.poll.interval.ms"


def join(decision: ConsumerMemberDecision, _poll: object = None) -> None:
    """L32: begin to join, without partitions, at the first poll after subscribing."""
    client_assignors.announce(decision)
    decision.enter(ConsumerMemberState.JOINING)
    decision.start(POLL_OVERDUE, decision.config.max_poll_interval_ms)
    rhythm.beat_soon(decision)


def _forget_membership(decision: ConsumerMemberDecision) -> None:
    """Reset the fields of a membership that has ended."""
    decision.cancel(*decision.session.deadlines.due_times())
    decision.session = replace(
        decision.session,
        epoch=NOT_JOINED,
        target=None,
        acknowledged=None,
        sent=None,
        pattern_sent=False,
        is_due=False,
        computation=None,
        asking=None,
        unasked=False,
        assignment_metadata=None,
        told_metadata=None,
    )


# ------------------------------------------------------------------------------- by its own will


def start(decision: ConsumerMemberDecision, reason: str) -> None:
    """L30: the application gives up its partitions, then the member leaves."""
    decision.cancel(POLL_OVERDUE)
    decision.session = replace(
        decision.session,
        target=None,
        asking=None,
        unasked=False,
        after_leaving=ConsumerMemberState.UNSUBSCRIBED,
    )
    decision.enter(ConsumerMemberState.PREPARE_LEAVING, reason)
    go_on(decision)


def go_on(decision: ConsumerMemberDecision, _done: object = None) -> None:
    """Take the next step: finish the open call, give up owned partitions, send the request."""
    session = decision.session
    if session.callback is not None:
        return
    if session.owned:
        decision.call(revoked_or_lost(session), session.owned)
    else:
        _take_leave(decision)


def _take_leave(decision: ConsumerMemberDecision) -> None:
    says_good_bye = _may_leave(decision)
    _forget_membership(decision)
    if says_good_bye:
        decision.enter(ConsumerMemberState.LEAVING)
        rhythm.beat_soon(decision)
    else:
        finish(decision)


def _may_leave(decision: ConsumerMemberDecision) -> bool:
    """Return whether the coordinator is known and the member is to leave (KIP-1092)."""
    session = decision.session
    stays = session.closing is GroupMembershipOperation.REMAIN_IN_GROUP
    is_silent = stays and decision.config.group_instance_id is None
    return session.greeted and session.coordinator_known and not is_silent


def say_good_bye(decision: ConsumerMemberDecision, _ready: object) -> None:
    """L37: send one leave request. A static member may return, unless told otherwise (L35)."""
    is_static = decision.config.group_instance_id is not None
    for_good = decision.session.closing is GroupMembershipOperation.LEAVE_GROUP
    epoch = LEAVE_FOR_NOW_EPOCH if is_static and not for_good else LEAVE_EPOCH
    decision.beat(leave_request(decision.config, decision.session, epoch))
    if decision.session.after_leaving is ConsumerMemberState.STALE:
        finish(decision)  # without waiting for the answer


def finish(decision: ConsumerMemberDecision, _answer: object = None) -> None:
    """L37: complete the departure: the member is out, or will be when its session ends.

    This does not depend on the answer to the leave request.
    """
    after = decision.session.after_leaving
    decision.session = replace(decision.session, greeted=False, is_due=False, failures=0)
    if after is ConsumerMemberState.STALE and decision.state is ConsumerMemberState.PREPARE_LEAVING:
        decision.enter(ConsumerMemberState.LEAVING)
    if after is ConsumerMemberState.STALE:
        decision.enter(after, _NOT_POLLED)
        lose(decision)
    else:
        decision.enter(after)


def gone_unheard(decision: ConsumerMemberDecision, _event: object) -> None:
    """Leave without a request: the coordinator is lost, and the session will expire."""
    decision.session = replace(decision.session, coordinator_known=False)
    finish(decision)


# ----------------------------------------------------------------------------- max.poll.interval.ms


def become_stale(decision: ConsumerMemberDecision, _overdue: PollOverdue) -> None:
    """L35: an application that does not poll is not processing: release its partitions.

    The listener cannot run until the next poll, which reports the partitions as lost.
    """
    decision.session = replace(decision.session, after_leaving=ConsumerMemberState.STALE)
    decision.enter(ConsumerMemberState.PREPARE_LEAVING, _NOT_POLLED)
    _take_leave(decision)


def lose(decision: ConsumerMemberDecision, _done: object = None) -> None:
    """Report all partitions to the application as lost, including those just assigned."""
    session = decision.session
    if session.callback is None and session.owned:
        decision.call(revoked_or_lost(session), session.owned)


def done_stale(decision: ConsumerMemberDecision, _done: object) -> None:
    """Rejoin when the lost partitions were reported: the application polls again."""
    lose(decision)
    come_back(decision, _done)


def come_back(decision: ConsumerMemberDecision, _event: object) -> None:
    """L35: the application polls again: report the lost partitions, then join."""
    if decision.session.callback is None and decision.session.wants:
        join(decision)


# --------------------------------------------------------------------- by the coordinator's will


def fence(decision: ConsumerMemberDecision, answer: ConsumerGroupHeartbeatResponse) -> None:
    """L35: the member was removed: report its partitions as lost, then rejoin with the same id."""
    refused = decision.state is ConsumerMemberState.JOINING
    failures = decision.session.failures
    _forget_membership(decision)
    decision.session = replace(decision.session, greeted=False)
    decision.enter(
        ConsumerMemberState.FENCED, f"the coordinator answered {error_name(answer.error_code)}"
    )
    if refused:  # the coordinator may refuse every join: wait before each retry
        decision.session = replace(decision.session, failures=failures)
        rhythm.beat_later(decision)
    lose(decision)
    _leave_fenced(decision)


def done_fenced(decision: ConsumerMemberDecision, _done: object) -> None:
    """L35: the lost partitions were reported: join again."""
    lose(decision)
    _leave_fenced(decision)


def _leave_fenced(decision: ConsumerMemberDecision) -> None:
    if decision.session.callback is not None:
        return
    if decision.session.wants:
        join(decision)
    else:
        _forget_membership(decision)
        decision.enter(ConsumerMemberState.UNSUBSCRIBED)


def lose_membership(decision: ConsumerMemberDecision, _answer: object) -> None:
    """L35: removed while the application gives its partitions up: no leave request is needed."""
    _forget_membership(decision)
    decision.session = replace(decision.session, greeted=False)


def fail(decision: ConsumerMemberDecision, code: int, what: str) -> None:
    """L36: enter the failed state; the member's partitions are lost."""
    decision.raised.append(KafkaError(code, what))
    _forget_membership(decision)
    decision.enter(ConsumerMemberState.FATAL, what)
    lose(decision)
