"""Leaving: close, unsubscribe, and an application that has stopped polling (L7)."""

from __future__ import annotations

from kohort.group.member.classic import join
from kohort.group.member.classic.session import ClassicMemberDecision, ClassicMemberState
from kohort.group.member.events import (
    POLL_OVERDUE,
    RETRY_DUE,
    SESSION_OVERDUE,
    CallbackDone,
    Closing,
    GroupMembershipOperation,
    PollOverdue,
    Unsubscribed,
)
from kohort.group.member.session import revoked_or_lost
from kohort.group.subscription import NO_GENERATION
from kohort.values import replace
from kohort.wire.messages.membership import JoinGroupResponse, LeaveGroupRequest, MemberIdentity

_MID_REBALANCE = (ClassicMemberState.PREPARING_REBALANCE, ClassicMemberState.COMPLETING_REBALANCE)


def unsubscribe(decision: ClassicMemberDecision, _call: Unsubscribed) -> None:
    """Give everything up and leave; the member can be used again."""
    decision.session = replace(decision.session, topics=frozenset())
    _start(decision, ClassicMemberState.UNSUBSCRIBED, "the consumer unsubscribed from all topics")


def close(decision: ClassicMemberDecision, call: Closing) -> None:
    """Give everything up and leave, for good."""
    decision.session = replace(decision.session, operation=call.operation)
    _start(decision, ClassicMemberState.CLOSED, "the consumer is being closed")


def close_at_once(decision: ClassicMemberDecision, _call: Closing) -> None:
    """Close a member that owns nothing and is in no group."""
    decision.session = replace(decision.session, topics=frozenset())
    decision.enter(ClassicMemberState.CLOSED)


def close_afterwards(decision: ClassicMemberDecision, call: Closing) -> None:
    """Close a member that is already leaving: it will not rejoin."""
    decision.session = replace(
        decision.session,
        topics=frozenset(),
        after_leaving=ClassicMemberState.CLOSED,
        operation=call.operation,
    )


def unsubscribe_afterwards(decision: ClassicMemberDecision, _call: Unsubscribed) -> None:
    """Unsubscribe a member that is already leaving: it will not rejoin."""
    closing = decision.session.after_leaving is ClassicMemberState.CLOSED
    after = ClassicMemberState.CLOSED if closing else ClassicMemberState.UNSUBSCRIBED
    decision.session = replace(decision.session, topics=frozenset(), after_leaving=after)


def _start(decision: ClassicMemberDecision, after: ClassicMemberState, reason: str) -> None:
    session = decision.session
    awaits_member_id = _is_being_given_an_id(decision)
    decision.session = replace(
        session,
        # L7: during a rebalance, other members may already own the partitions.
        losing=not session.is_member or session.state in _MID_REBALANCE,
        after_leaving=after,
        reason=reason,
        request=session.request if awaits_member_id else None,
        job=None,
        assignment=None,
    )
    decision.cancel(RETRY_DUE, POLL_OVERDUE)
    decision.enter(ClassicMemberState.LEAVING, reason)
    if awaits_member_id:
        decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)
    else:
        go_on(decision)


def _is_being_given_an_id(decision: ClassicMemberDecision) -> bool:
    """L7 (KIP-394): the coordinator may have created an id for us; its answer is still in flight.

    It keeps the id for one session timeout, and every rebalance in that time waits for the id.
    """
    session = decision.session
    is_sent = (
        session.state is ClassicMemberState.PREPARING_REBALANCE and session.request is not None
    )
    return is_sent and not session.member_id and _wants_to_leave(decision)


def leave_as_named(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> None:
    """L7 (KIP-394): leave with the id that has just arrived."""
    decision.cancel(SESSION_OVERDUE)
    decision.session = replace(decision.session, member_id=answer.member_id, request=None)
    go_on(decision)


def go_on(decision: ClassicMemberDecision, _done: object = None) -> None:
    """Take the next step: finish the open call, give up owned partitions, send LeaveGroup."""
    session = decision.session
    if session.callback is not None:
        return
    if session.owned:
        decision.call(revoked_or_lost(session), session.owned)
    elif _may_leave(decision):
        sent = decision.send(_good_bye(decision, session.reason))
        decision.session = replace(decision.session, request=sent)
    else:
        finish(decision)


def _may_leave(decision: ClassicMemberDecision) -> bool:
    """Return whether the coordinator is known and the member has a membership to end."""
    session = decision.session
    return bool(session.member_id) and session.coordinator_known and _wants_to_leave(decision)


def _wants_to_leave(decision: ClassicMemberDecision) -> bool:
    """C33: a static member sends no LeaveGroup, so that it can return to its partitions.

    A closing application can override that, and keep a dynamic member from leaving (KIP-1092).
    """
    operation = decision.session.operation
    if decision.config.group_instance_id is None:
        return operation is not GroupMembershipOperation.REMAIN_IN_GROUP
    return operation is GroupMembershipOperation.LEAVE_GROUP


def _good_bye(decision: ClassicMemberDecision, reason: str) -> LeaveGroupRequest:
    member_id = decision.session.member_id
    return LeaveGroupRequest(
        group_id=decision.config.group_id,
        members=(
            MemberIdentity(
                member_id=member_id,
                group_instance_id=decision.config.group_instance_id,
                reason=reason or None,
            ),
        ),
    )


def finish(decision: ClassicMemberDecision, _answer: object = None) -> None:
    """Complete the departure: the member is out of the group, or will be when its session ends.

    If the coordinator refused LeaveGroup, it had already removed the member.
    """
    after = decision.session.after_leaving
    decision.cancel(*decision.session.deadlines.due_times())
    decision.session = replace(
        decision.session,
        member_id="",
        generation=NO_GENERATION,
        request=None,
        heartbeat=None,
        prepared=False,
        rejoin=None,
        group_topics=frozenset(),
        failures=0,
    )
    decision.enter(after)
    if after is ClassicMemberState.UNJOINED:
        start_joining(decision)


def start_joining(decision: ClassicMemberDecision, _call: object = None) -> None:
    """Join as a new member."""
    decision.enter(ClassicMemberState.UNJOINED)
    decision.start(POLL_OVERDUE, decision.config.max_poll_interval_ms)
    join.rejoin(decision, "")


# ----------------------------------------------------------------------------- max.poll.interval.ms


def become_stale(decision: ClassicMemberDecision, _overdue: PollOverdue) -> None:
    """L7: an application that does not poll is not processing: release its partitions.

    The listener cannot run until the next poll, which reports the partitions as lost.
    """
    reason = "the application did not poll within max.poll.interval.ms"
    if _may_leave(decision):
        decision.send(_good_bye(decision, reason))
    decision.cancel(*decision.session.deadlines.due_times())
    decision.session = replace(
        decision.session,
        member_id="",
        generation=NO_GENERATION,
        request=None,
        heartbeat=None,
        job=None,
        assignment=None,
        prepared=False,
        rejoin=join.still_owed(decision),
    )
    decision.enter(ClassicMemberState.STALE, reason)


def come_back(decision: ClassicMemberDecision, _event: object = None) -> None:
    """L7: the application polls again, so callbacks can run: report the loss, then join."""
    if decision.session.callback is None:
        decision.start(POLL_OVERDUE, decision.config.max_poll_interval_ms)
        join.rejoin(decision, "the application polls again")


# ----------------------------------------------------------------------------------------- failing


def lose_the_rest(decision: ClassicMemberDecision, _done: CallbackDone) -> None:
    """L3: partitions whose assignment was being reported when the member failed are lost too."""
    if decision.session.owned:
        decision.call(revoked_or_lost(decision.session), decision.session.owned)
