"""Calls of the application, news of the coordinator, and time: the rest of a member's table."""

from __future__ import annotations

from kohort.errors import LocalProtocolError
from kohort.group.member import lookup
from kohort.group.member.classic import coordinator, join, leave
from kohort.group.member.classic.session import ClassicMemberDecision, MemberState
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


def subscribe(decision: ClassicMemberDecision, call: Subscribed) -> None:
    """The first subscription: join."""
    note_topics(decision, call)
    leave.start_joining(decision)


def note_topics(decision: ClassicMemberDecision, call: Subscribed) -> None:
    """Another subscription; it is compared with what we joined with when we are stable."""
    if not call.topics:
        raise LocalProtocolError("a subscription to no topics is an unsubscribe")
    decision.session = replace(decision.session, topics=call.topics)


def is_another_subscription(decision: ClassicMemberDecision, call: Subscribed) -> bool:
    """Whether it differs from what we joined with."""
    return call.topics != decision.session.joined_topics


def resubscribe(decision: ClassicMemberDecision, call: Subscribed) -> None:
    """Another subscription needs a rebalance."""
    note_topics(decision, call)
    join.rejoin(decision, "the subscription changed")


def comes_back(decision: ClassicMemberDecision, _call: Subscribed) -> bool:
    """Whether the member leaves only for now."""
    return decision.session.after_leaving is not MemberState.CLOSED


def subscribe_afterwards(decision: ClassicMemberDecision, call: Subscribed) -> None:
    """Leave first, then join as somebody new."""
    note_topics(decision, call)
    decision.session = replace(decision.session, after_leaving=MemberState.UNJOINED)


def note_poll(decision: ClassicMemberDecision, _call: Polled) -> None:
    """The application is alive (KIP-62)."""
    decision.start(POLL_OVERDUE, decision.config.max_poll_interval_ms)


def come_back(decision: ClassicMemberDecision, _call: Polled) -> None:
    """L7: it polls again."""
    leave.come_back(decision)


def rebalance(decision: ClassicMemberDecision, call: RejoinAsked) -> None:
    """L15: a rebalance was asked for (KIP-568)."""
    join.rejoin(decision, call.reason)


def rebalance_later(decision: ClassicMemberDecision, call: RejoinAsked) -> None:
    """L15: asked for in the middle of another one: finish that first."""
    decision.session = replace(decision.session, rejoin=call.reason)


def pass_over(_decision: ClassicMemberDecision, _event: object) -> None:
    """Nothing to do."""


# ------------------------------------------------------------------------------- the coordinator


def is_waiting(decision: ClassicMemberDecision, _event: CoordinatorKnown) -> bool:
    """Whether a wait before the next try is still running."""
    return decision.session.deadlines.get(RETRY_DUE) is not None


def join_coordinator(decision: ClassicMemberDecision, _event: CoordinatorKnown) -> None:
    """Now there is somebody to join."""
    lookup.note_coordinator(decision)
    join.rejoin(decision, decision.session.reason)


def greet_coordinator(decision: ClassicMemberDecision, _event: CoordinatorKnown) -> None:
    """Tell the new coordinator at once that we are alive."""
    lookup.note_coordinator(decision)
    if decision.session.is_member:
        decision.start(HEARTBEAT_DUE, 0)


def note_no_coordinator(decision: ClassicMemberDecision, _event: CoordinatorLost) -> None:
    """Nobody needs it now."""
    decision.session = replace(decision.session, coordinator_known=False)


def has_said_good_bye(decision: ClassicMemberDecision, _event: object) -> bool:
    """Whether LeaveGroup is on its way."""
    return decision.session.request is not None


def leave_unheard(decision: ClassicMemberDecision, _event: object) -> None:
    """The answer to LeaveGroup would not have changed anything."""
    decision.session = replace(decision.session, coordinator_known=False)
    leave.finish(decision)


def give_up_lookup(decision: ClassicMemberDecision, event: LookupFailed) -> None:
    """The group has no coordinator for us."""
    join.fail(decision, *lookup.end(decision, event))


# -------------------------------------------------------------------------------------------- time


def retry(decision: ClassicMemberDecision, _event: RetryDue) -> None:
    """The wait is over."""
    join.rejoin(decision, decision.session.reason)


def beat(decision: ClassicMemberDecision, _event: HeartbeatDue) -> None:
    """L9: one heartbeat at a time, as long as we are a member.

    Who is late once does not stay behind the others of the group, who began when it did.
    """
    session = decision.session
    if not session.is_member:
        return
    interval_ms = decision.config.heartbeat_interval_ms
    decision.start(HEARTBEAT_DUE, interval_ms - decision.late_ms % interval_ms)
    if session.coordinator_known and session.heartbeat is None:
        request = HeartbeatRequest(
            group_id=decision.config.group_id,
            generation_id=session.generation,
            member_id=session.member_id,
            group_instance_id=decision.config.group_instance_id,
        )
        sent = decision.send(request)
        decision.session = replace(decision.session, heartbeat=sent)


def doubt_coordinator(decision: ClassicMemberDecision, _event: SessionOverdue) -> None:
    """Nothing heard for a whole session: the coordinator may be somewhere else."""
    if decision.session.is_member:
        decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)
        coordinator.forget(decision)


def never(decision: ClassicMemberDecision, event: object) -> None:
    """An event that this state has prevented."""
    raise AssertionError(f"{type(event).__name__} in {decision.state.name}")
