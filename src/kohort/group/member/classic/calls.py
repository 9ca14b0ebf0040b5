"""Calls from and into the application, changes of the coordinator, and time.

A call into the application may take any time; its end is an event (L3-L7).
"""

from __future__ import annotations

from kohort.group.events import Ownership
from kohort.group.member import lookup
from kohort.group.member.classic import join, leave
from kohort.group.member.classic.session import ClassicMemberDecision, ClassicMemberState
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    RETRY_DUE,
    SESSION_OVERDUE,
    CallbackDone,
    CoordinatorKnown,
    CoordinatorLost,
    HeartbeatDue,
    LookupFailed,
    RejoinAsked,
    SessionOverdue,
    Subscribed,
)
from kohort.group.member.rows import note_topics
from kohort.group.member.session import revoked_or_lost
from kohort.values import replace
from kohort.wire.messages.membership import HeartbeatRequest

# ------------------------------------------------------------------------------- the application


def is_another_subscription(decision: ClassicMemberDecision, call: Subscribed) -> bool:
    """Return whether the topics differ from those of the last join."""
    return call.topics != decision.session.joined_topics


def resubscribe(decision: ClassicMemberDecision, call: Subscribed) -> None:
    """Rejoin: a changed subscription needs a rebalance."""
    note_topics(decision, call)
    join.rejoin(decision, "the subscription changed")


def comes_back(decision: ClassicMemberDecision, _call: Subscribed) -> bool:
    """Return whether the member will rejoin after leaving."""
    return decision.session.after_leaving is not ClassicMemberState.CLOSED


def subscribe_afterwards(decision: ClassicMemberDecision, call: Subscribed) -> None:
    """Leave first, then join as a new member."""
    note_topics(decision, call)
    decision.session = replace(decision.session, after_leaving=ClassicMemberState.UNJOINED)


def rebalance(decision: ClassicMemberDecision, call: RejoinAsked) -> None:
    """L15: start the requested rebalance (KIP-568)."""
    join.rejoin(decision, call.reason)


def rebalance_later(decision: ClassicMemberDecision, call: RejoinAsked) -> None:
    """L15: a rebalance was requested during another one: finish the running one first."""
    decision.session = replace(decision.session, rejoin=call.reason)


# ---------------------------------------------------------------------------- its calls have ended


def finish_call(decision: ClassicMemberDecision, _done: CallbackDone) -> None:
    """Store the end of the call; a failure changes nothing (L6)."""
    callback = decision.session.callback
    assert callback is not None
    owned, change = decision.session.owned, callback.change
    if change is Ownership.REVOKED:
        change = revoked_or_lost(decision.session)
    if change is not Ownership.ASSIGNED:
        owned -= callback.partitions
    decision.session = replace(decision.session, callback=None, owned=owned)
    decision.say_told(callback, change)


def revoked(decision: ClassicMemberDecision, done: CallbackDone) -> None:
    """L3: the application has given up its partitions: join."""
    finish_call(decision, done)
    if not decision.session.is_member:
        # removed in the meantime: the partitions it would have kept are lost too
        decision.session = replace(decision.session, prepared=False)
    join.rejoin(decision, decision.session.reason)


def is_moving(decision: ClassicMemberDecision, _done: CallbackDone) -> bool:
    """Return whether the finished call gave up the partitions that move to another member."""
    callback = decision.session.callback
    return callback is not None and callback.change is Ownership.REVOKED


def moved(decision: ClassicMemberDecision, done: CallbackDone) -> None:
    """L5: report the added partitions next, unless the membership was lost meanwhile."""
    finish_call(decision, done)
    if decision.session.is_member:
        join.take_up(decision)
    else:
        decision.session = replace(decision.session, assignment=None)
        join.rejoin(decision, "the member was removed from the group")


def assigned(decision: ClassicMemberDecision, done: CallbackDone) -> None:
    """L5: the rebalance is complete."""
    finish_call(decision, done)
    join.settle(decision)


# ------------------------------------------------------------------------------- the coordinator


def is_waiting(decision: ClassicMemberDecision, _event: CoordinatorKnown) -> bool:
    """Return whether the wait before the next attempt is still running."""
    return decision.runs(RETRY_DUE)


def greet_coordinator(decision: ClassicMemberDecision, _event: CoordinatorKnown) -> None:
    """Send the new coordinator a heartbeat at once."""
    lookup.note_coordinator(decision)
    if decision.session.is_member:
        decision.start(HEARTBEAT_DUE, 0)


def note_no_coordinator(decision: ClassicMemberDecision, _event: CoordinatorLost) -> None:
    """Ignore the loss of the coordinator: nothing needs it now."""
    decision.session = replace(decision.session, coordinator_known=False)


def has_said_good_bye(decision: ClassicMemberDecision, _event: object) -> bool:
    """Return whether LeaveGroup is in flight."""
    return decision.session.request is not None


def leave_unheard(decision: ClassicMemberDecision, _event: object) -> None:
    """Leave without waiting for the answer to LeaveGroup, which would change nothing."""
    decision.session = replace(decision.session, coordinator_known=False)
    leave.finish(decision)


def give_up_lookup(decision: ClassicMemberDecision, event: LookupFailed) -> None:
    """Fail: the group has no coordinator for this member."""
    join.fail(decision, *lookup.end(decision, event))


# -------------------------------------------------------------------------------------------- time


def retry(decision: ClassicMemberDecision, _event: object) -> None:
    """Join: the wait is over, or the coordinator is known."""
    join.rejoin(decision, decision.session.reason)


def beat(decision: ClassicMemberDecision, _event: HeartbeatDue) -> None:
    """L9: send one heartbeat at a time, as long as the member is in the group.

    The next one is due one interval after this one was, not after it was sent. So a single late
    heartbeat does not shift the later ones.
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
    """Look the coordinator up: no answer for a whole session timeout, so it may have moved."""
    if decision.session.is_member:
        decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)
        join.forget_coordinator(decision)
