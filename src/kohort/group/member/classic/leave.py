"""Leaving: close, unsubscribe, and the application that does not poll any more (L7)."""

from __future__ import annotations

from kohort.group.member.classic import join
from kohort.group.member.classic.session import ClassicMemberDecision, MemberState
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

_MID_REBALANCE = (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)


def unsubscribe(decision: ClassicMemberDecision, _call: Unsubscribed) -> None:
    """Give everything up and leave; the member can be used again."""
    decision.session = replace(decision.session, topics=frozenset())
    _start(decision, MemberState.UNSUBSCRIBED, "the consumer unsubscribed from all topics")


def close(decision: ClassicMemberDecision, call: Closing) -> None:
    """Give everything up and leave, for good."""
    decision.session = replace(decision.session, operation=call.operation)
    _start(decision, MemberState.CLOSED, "the consumer is being closed")


def close_at_once(decision: ClassicMemberDecision, _call: Closing) -> None:
    """There is nothing to give up and nothing to leave."""
    decision.session = replace(decision.session, topics=frozenset())
    decision.enter(MemberState.CLOSED)


def close_afterwards(decision: ClassicMemberDecision, call: Closing) -> None:
    """It is leaving already; now it is for good."""
    decision.session = replace(
        decision.session,
        topics=frozenset(),
        after_leaving=MemberState.CLOSED,
        operation=call.operation,
    )


def unsubscribe_afterwards(decision: ClassicMemberDecision, _call: Unsubscribed) -> None:
    """It is leaving already; it does not have to come back."""
    closing = decision.session.after_leaving is MemberState.CLOSED
    after = MemberState.CLOSED if closing else MemberState.UNSUBSCRIBED
    decision.session = replace(decision.session, topics=frozenset(), after_leaving=after)


def _start(decision: ClassicMemberDecision, after: MemberState, reason: str) -> None:
    session = decision.session
    awaits_member_id = _is_being_given_an_id(decision)
    decision.session = replace(
        session,
        # L7: in the middle of a rebalance others may have the partitions already.
        losing=not session.is_member or session.state in _MID_REBALANCE,
        after_leaving=after,
        reason=reason,
        request=session.request if awaits_member_id else None,
        job=None,
        assignment=None,
    )
    decision.cancel(RETRY_DUE, POLL_OVERDUE)
    decision.enter(MemberState.LEAVING, reason)
    if awaits_member_id:
        decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)
    else:
        go_on(decision)


def _is_being_given_an_id(decision: ClassicMemberDecision) -> bool:
    """L7 (KIP-394): whether the coordinator may have given us an id that we are still to hear of.

    It keeps the id for a session time-out, and holds up every rebalance of the others meanwhile.
    """
    session = decision.session
    is_sent = session.state is MemberState.PREPARING_REBALANCE and session.request is not None
    return is_sent and not session.member_id and _wants_to_leave(decision)


def leave_as_named(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> None:
    """L7 (KIP-394): now that we know our id, give it back."""
    decision.cancel(SESSION_OVERDUE)
    decision.session = replace(decision.session, member_id=answer.member_id, request=None)
    go_on(decision)


def go_on(decision: ClassicMemberDecision, _done: object = None) -> None:
    """Take the next step: finish the open call, give up what is owned, say good-bye."""
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
    """Whether there is a coordinator to say good-bye to, and something to say."""
    session = decision.session
    return bool(session.member_id) and session.coordinator_known and _wants_to_leave(decision)


def _wants_to_leave(decision: ClassicMemberDecision) -> bool:
    """C33: a static member does not leave, so that it can come back to what it had.

    Unless the closing application says otherwise; it can keep a dynamic one silent (KIP-1092).
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
    """The member is out of the group, or will be when its session ends.

    If the coordinator has refused a good-bye, it was out before.
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
    if after is MemberState.UNJOINED:
        start_joining(decision)


def start_joining(decision: ClassicMemberDecision, _call: object = None) -> None:
    """Join as a new member."""
    decision.enter(MemberState.UNJOINED)
    decision.start(POLL_OVERDUE, decision.config.max_poll_interval_ms)
    join.rejoin(decision, "")


# ----------------------------------------------------------------------------- max.poll.interval.ms


def become_stale(decision: ClassicMemberDecision, _overdue: PollOverdue) -> None:
    """L7: an application that does not poll cannot process: let others have its partitions.

    It is asked for nothing, it would not answer. What it owns is lost when it comes back.
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
    decision.enter(MemberState.STALE, reason)


def come_back(decision: ClassicMemberDecision, _event: object = None) -> None:
    """L7: the application polls again; callbacks run there, too. Tell it what it lost, and join."""
    if decision.session.callback is None:
        decision.start(POLL_OVERDUE, decision.config.max_poll_interval_ms)
        join.rejoin(decision, "the application polls again")


# ----------------------------------------------------------------------------------------- failing


def lose_the_rest(decision: ClassicMemberDecision, _done: CallbackDone) -> None:
    """L3: what was assigned while the member failed is lost as well."""
    if decision.session.owned:
        decision.call(revoked_or_lost(decision.session), decision.session.owned)
