"""Leaving: close, unsubscribe, and the application that does not poll any more (L7)."""

from __future__ import annotations

from kohort.group.events import Ownership
from kohort.group.member.classic import join
from kohort.group.member.classic.session import ClassicMemberDecision, MemberState
from kohort.group.member.events import (
    POLL_OVERDUE,
    RETRY_DUE,
    Closing,
    GroupMembershipOperation,
    PollOverdue,
    Unsubscribed,
)
from kohort.group.subscription import NO_GENERATION
from kohort.values import replace
from kohort.wire.messages.membership import LeaveGroupRequest, MemberIdentity

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
    decision.session = replace(
        session,
        # L7: in the middle of a rebalance others may have the partitions already.
        losing=not session.is_member or session.state in _MID_REBALANCE,
        after_leaving=after,
        reason=reason,
        request=None,
        job=None,
        assignment=None,
    )
    decision.cancel(RETRY_DUE, POLL_OVERDUE)
    decision.enter(MemberState.LEAVING, reason)
    go_on(decision)


def go_on(decision: ClassicMemberDecision) -> None:
    """Take the next step: finish the open call, give up what is owned, say good-bye."""
    session = decision.session
    if session.callback is not None:
        return
    if session.owned:
        lost = session.losing or not session.is_member
        decision.call(Ownership.LOST if lost else Ownership.REVOKED, session.owned)
    elif _may_leave(decision):
        sent = decision.send(_good_bye(decision, session.reason))
        decision.session = replace(decision.session, request=sent)
    else:
        finish(decision)


def _may_leave(decision: ClassicMemberDecision) -> bool:
    """C33: a static member does not leave, so that it can come back to what it had.

    Unless it is told otherwise as it closes; a dynamic one can be told to be silent (KIP-1092).
    """
    session = decision.session
    if decision.config.group_instance_id is None:
        leaves = session.operation is not GroupMembershipOperation.REMAIN_IN_GROUP
    else:
        leaves = session.operation is GroupMembershipOperation.LEAVE_GROUP
    return bool(session.member_id) and leaves and session.coordinator_known


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


def finish(decision: ClassicMemberDecision) -> None:
    """The member is out of the group, or will be when its session ends."""
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


def start_joining(decision: ClassicMemberDecision) -> None:
    """Join as somebody new."""
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


def come_back(decision: ClassicMemberDecision) -> None:
    """The application polls again: tell it what it lost, and join."""
    if decision.session.callback is None:
        decision.start(POLL_OVERDUE, decision.config.max_poll_interval_ms)
        join.rejoin(decision, "the application polls again")
