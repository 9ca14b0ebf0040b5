"""Leaving: close, unsubscribe, and the application that does not poll any more (L7)."""

from __future__ import annotations

from kohort.group.events import Ownership
from kohort.group.member.classic import join
from kohort.group.member.classic.session import MemberDraft, MemberState
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


def unsubscribe(draft: MemberDraft, _call: Unsubscribed) -> None:
    """Give everything up and leave; the member can be used again."""
    draft.session = replace(draft.session, topics=frozenset())
    _start(draft, MemberState.UNSUBSCRIBED, "the consumer unsubscribed from all topics")


def close(draft: MemberDraft, call: Closing) -> None:
    """Give everything up and leave, for good."""
    draft.session = replace(draft.session, operation=call.operation)
    _start(draft, MemberState.CLOSED, "the consumer is being closed")


def close_at_once(draft: MemberDraft, _call: Closing) -> None:
    """There is nothing to give up and nothing to leave."""
    draft.session = replace(draft.session, topics=frozenset())
    draft.enter(MemberState.CLOSED)


def close_afterwards(draft: MemberDraft, call: Closing) -> None:
    """It is leaving already; now it is for good."""
    draft.session = replace(
        draft.session,
        topics=frozenset(),
        after_leaving=MemberState.CLOSED,
        operation=call.operation,
    )


def unsubscribe_afterwards(draft: MemberDraft, _call: Unsubscribed) -> None:
    """It is leaving already; it does not have to come back."""
    closing = draft.session.after_leaving is MemberState.CLOSED
    after = MemberState.CLOSED if closing else MemberState.UNSUBSCRIBED
    draft.session = replace(draft.session, topics=frozenset(), after_leaving=after)


def _start(draft: MemberDraft, after: MemberState, reason: str) -> None:
    session = draft.session
    draft.session = replace(
        session,
        # L7: in the middle of a rebalance others may have the partitions already.
        losing=not session.is_member or session.state in _MID_REBALANCE,
        after_leaving=after,
        reason=reason,
        request=None,
        job=None,
        assignment=None,
    )
    draft.cancel(RETRY_DUE, POLL_OVERDUE)
    draft.enter(MemberState.LEAVING, reason)
    go_on(draft)


def go_on(draft: MemberDraft) -> None:
    """Take the next step: finish the open call, give up what is owned, say good-bye."""
    session = draft.session
    if session.callback is not None:
        return
    if session.owned:
        lost = session.losing or not session.is_member
        draft.call(Ownership.LOST if lost else Ownership.REVOKED, session.owned)
    elif _may_leave(draft):
        sent = draft.send(_good_bye(draft, session.reason))
        draft.session = replace(draft.session, request=sent)
    else:
        finish(draft)


def _may_leave(draft: MemberDraft) -> bool:
    """C33: a static member does not leave, so that it can come back to what it had.

    Unless it is told otherwise as it closes; a dynamic one can be told to be silent (KIP-1092).
    """
    session = draft.session
    if draft.config.group_instance_id is None:
        leaves = session.operation is not GroupMembershipOperation.REMAIN_IN_GROUP
    else:
        leaves = session.operation is GroupMembershipOperation.LEAVE_GROUP
    return bool(session.member_id) and leaves and session.coordinator_known


def _good_bye(draft: MemberDraft, reason: str) -> LeaveGroupRequest:
    member_id = draft.session.member_id
    return LeaveGroupRequest(
        group_id=draft.config.group_id,
        members=(
            MemberIdentity(
                member_id=member_id,
                group_instance_id=draft.config.group_instance_id,
                reason=reason or None,
            ),
        ),
    )


def finish(draft: MemberDraft) -> None:
    """The member is out of the group, or will be when its session ends."""
    after = draft.session.after_leaving
    draft.cancel(*draft.session.deadlines.due_times())
    draft.session = replace(
        draft.session,
        member_id="",
        generation=NO_GENERATION,
        request=None,
        heartbeat=None,
        prepared=False,
        rejoin=None,
        group_topics=frozenset(),
        failures=0,
    )
    draft.enter(after)
    if after is MemberState.UNJOINED:
        start_joining(draft)


def start_joining(draft: MemberDraft) -> None:
    """Join as somebody new."""
    draft.enter(MemberState.UNJOINED)
    draft.start(POLL_OVERDUE, draft.config.max_poll_interval_ms)
    join.rejoin(draft, "")


# ----------------------------------------------------------------------------- max.poll.interval.ms


def become_stale(draft: MemberDraft, _overdue: PollOverdue) -> None:
    """L7: an application that does not poll cannot process: let others have its partitions.

    It is asked for nothing, it would not answer. What it owns is lost when it comes back.
    """
    reason = "the application did not poll within max.poll.interval.ms"
    if _may_leave(draft):
        draft.send(_good_bye(draft, reason))
    draft.cancel(*draft.session.deadlines.due_times())
    draft.session = replace(
        draft.session,
        member_id="",
        generation=NO_GENERATION,
        request=None,
        heartbeat=None,
        job=None,
        assignment=None,
        prepared=False,
        rejoin=join.still_owed(draft),
    )
    draft.enter(MemberState.STALE, reason)


def come_back(draft: MemberDraft) -> None:
    """The application polls again: tell it what it lost, and join."""
    if draft.session.callback is None:
        draft.start(POLL_OVERDUE, draft.config.max_poll_interval_ms)
        join.rejoin(draft, "the application polls again")
