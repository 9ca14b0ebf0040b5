"""Calls of the application, news of the coordinator, and time: the rest of a member's table."""

from __future__ import annotations

from kohort.errors import LocalProtocolError
from kohort.group.member import lookup
from kohort.group.member.classic import coordinator, join, leave
from kohort.group.member.classic.session import MemberDraft, MemberState
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    POLL_OVERDUE,
    RETRY_DUE,
    SESSION_OVERDUE,
    CoordinatorKnown,
    CoordinatorLost,
    HeartbeatDue,
    LookupFailed,
    Polled,
    RejoinAsked,
    RetryDue,
    SessionOverdue,
    Subscribed,
)
from kohort.values import replace
from kohort.wire.messages.membership import HeartbeatRequest

# ------------------------------------------------------------------------------- the application


def subscribe(draft: MemberDraft, call: Subscribed) -> None:
    """The first subscription: join."""
    note_topics(draft, call)
    leave.start_joining(draft)


def note_topics(draft: MemberDraft, call: Subscribed) -> None:
    """Another subscription; it is compared with what we joined with when we are stable."""
    if not call.topics:
        raise LocalProtocolError("a subscription to no topics is an unsubscribe")
    draft.session = replace(draft.session, topics=call.topics)


def is_another_subscription(draft: MemberDraft, call: Subscribed) -> bool:
    """Whether it differs from what we joined with."""
    return call.topics != draft.session.joined_topics


def resubscribe(draft: MemberDraft, call: Subscribed) -> None:
    """Another subscription needs a rebalance."""
    note_topics(draft, call)
    join.rejoin(draft, "the subscription changed")


def comes_back(draft: MemberDraft, _call: Subscribed) -> bool:
    """Whether the member leaves only for now."""
    return draft.session.after_leaving is not MemberState.CLOSED


def subscribe_afterwards(draft: MemberDraft, call: Subscribed) -> None:
    """Leave first, then join as somebody new."""
    note_topics(draft, call)
    draft.session = replace(draft.session, after_leaving=MemberState.UNJOINED)


def note_poll(draft: MemberDraft, _call: Polled) -> None:
    """The application is alive (KIP-62)."""
    draft.start(POLL_OVERDUE, draft.config.max_poll_interval_ms)


def come_back(draft: MemberDraft, _call: Polled) -> None:
    """L7: it polls again."""
    leave.come_back(draft)


def rebalance(draft: MemberDraft, call: RejoinAsked) -> None:
    """L15: a rebalance was asked for (KIP-568)."""
    join.rejoin(draft, call.reason)


def rebalance_later(draft: MemberDraft, call: RejoinAsked) -> None:
    """L15: asked for in the middle of another one: finish that first."""
    draft.session = replace(draft.session, rejoin=call.reason)


def pass_over(_draft: MemberDraft, _event: object) -> None:
    """Nothing to do."""


# ------------------------------------------------------------------------------- the coordinator


def is_waiting(draft: MemberDraft, _event: CoordinatorKnown) -> bool:
    """Whether a wait before the next try is still running."""
    return draft.session.deadlines.get(RETRY_DUE) is not None


def join_coordinator(draft: MemberDraft, _event: CoordinatorKnown) -> None:
    """Now there is somebody to join."""
    lookup.note_coordinator(draft)
    join.rejoin(draft, draft.session.reason)


def greet_coordinator(draft: MemberDraft, _event: CoordinatorKnown) -> None:
    """Tell the new coordinator at once that we are alive."""
    lookup.note_coordinator(draft)
    if draft.session.is_member:
        draft.start(HEARTBEAT_DUE, 0)


def note_no_coordinator(draft: MemberDraft, _event: CoordinatorLost) -> None:
    """Nobody needs it now."""
    draft.session = replace(draft.session, coordinator_known=False)


def has_said_good_bye(draft: MemberDraft, _event: object) -> bool:
    """Whether LeaveGroup is on its way."""
    return draft.session.request is not None


def leave_unheard(draft: MemberDraft, _event: object) -> None:
    """The answer to LeaveGroup would not have changed anything."""
    draft.session = replace(draft.session, coordinator_known=False)
    leave.finish(draft)


def give_up_lookup(draft: MemberDraft, event: LookupFailed) -> None:
    """The group has no coordinator for us."""
    join.fail(draft, *lookup.end(draft, event))


# -------------------------------------------------------------------------------------------- time


def retry(draft: MemberDraft, _event: RetryDue) -> None:
    """The wait is over."""
    join.rejoin(draft, draft.session.reason)


def beat(draft: MemberDraft, _event: HeartbeatDue) -> None:
    """L9: one heartbeat at a time, as long as we are a member.

    Who is late once does not stay behind the others of the group, who began when it did.
    """
    session = draft.session
    if not session.is_member:
        return
    interval_ms = draft.config.heartbeat_interval_ms
    draft.start(HEARTBEAT_DUE, interval_ms - draft.late_ms % interval_ms)
    if session.coordinator_known and session.heartbeat is None:
        request = HeartbeatRequest(
            group_id=draft.config.group_id,
            generation_id=session.generation,
            member_id=session.member_id,
            group_instance_id=draft.config.group_instance_id,
        )
        sent = draft.send(request)
        draft.session = replace(draft.session, heartbeat=sent)


def doubt_coordinator(draft: MemberDraft, _event: SessionOverdue) -> None:
    """Nothing heard for a whole session: the coordinator may be somewhere else."""
    if draft.session.is_member:
        draft.start(SESSION_OVERDUE, draft.config.session_timeout_ms)
        coordinator.forget(draft)


def never(draft: MemberDraft, event: object) -> None:
    """An event that this state has prevented."""
    raise AssertionError(f"{type(event).__name__} in {draft.state.name}")
