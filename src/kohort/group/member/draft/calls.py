"""Calls of the application, their ends, changes of the coordinator, and time."""

from __future__ import annotations

from kohort.group.events import Ownership
from kohort.group.member import lookup
from kohort.group.member.draft import join
from kohort.group.member.draft.session import (
    DraftMemberDecision,
    DraftMemberState,
    heartbeat_interval_ms,
)
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    SESSION_OVERDUE,
    CallbackDone,
    CoordinatorKnown,
    HeartbeatDue,
    LookupFailed,
    Polled,
    SessionOverdue,
    Subscribed,
)
from kohort.group.member.rows import note_topics
from kohort.values import replace
from kohort.wire.messages.draft import DraftHeartbeatRequest

DISCOVER = DraftMemberState.DISCOVER_COORDINATOR
PART_OF_GROUP = DraftMemberState.PART_OF_GROUP
REDISCOVER = DraftMemberState.REDISCOVER_COORDINATOR

# ------------------------------------------------------------------------------- the application


def start_up(decision: DraftMemberDecision, call: Subscribed) -> None:
    """D21: on the first subscription, find the coordinator and join."""
    note_topics(decision, call)
    decision.session = replace(decision.session, polled_at=decision.now)
    decision.enter(DISCOVER)
    join.go_on(decision)


def is_another_subscription(decision: DraftMemberDecision, call: Subscribed) -> bool:
    """Return whether the topics differ from those of the last join."""
    return call.topics != decision.session.joined_topics


def resubscribe(decision: DraftMemberDecision, call: Subscribed) -> None:
    """Rejoin: the subscription changed."""
    note_topics(decision, call)
    join.stop(decision, "the subscription changed")


def subscribe_afterwards(decision: DraftMemberDecision, call: Subscribed) -> None:
    """Give up first, then join."""
    note_topics(decision, call)
    decision.session = replace(decision.session, after_leaving=DISCOVER)


def note_poll(decision: DraftMemberDecision, _call: Polled) -> None:
    """D25: note that the application is alive; after a long silence, send a heartbeat at once."""
    was_silent = is_silent(decision)
    decision.session = replace(decision.session, polled_at=decision.now)
    if was_silent and decision.runs(HEARTBEAT_DUE):
        decision.start(HEARTBEAT_DUE, 0)


def is_silent(decision: DraftMemberDecision) -> bool:
    """Return whether the application has stopped polling (`max.poll.interval.ms`)."""
    return decision.now - decision.session.polled_at > decision.config.max_poll_interval_ms


# ---------------------------------------------------------------------------- its calls have ended


def finish_call(decision: DraftMemberDecision, _done: CallbackDone) -> None:
    """Store the end of the call; a failure changes nothing (D22)."""
    callback = decision.session.callback
    assert callback is not None
    decision.session = replace(decision.session, callback=None)
    if callback.change is not Ownership.ASSIGNED:
        decision.session = replace(decision.session, owned=frozenset(), consuming=False)
    decision.say_told(callback, callback.change)


# -------------------------------------------------------------------------------- the coordinator


def greet_coordinator(decision: DraftMemberDecision, _event: CoordinatorKnown) -> None:
    """D2, D23: ping the new coordinator; if it accepts, the consumer is in the group again."""
    lookup.note_coordinator(decision)
    decision.enter(PART_OF_GROUP)
    decision.start(HEARTBEAT_DUE, 0)
    if decision.session.topics != decision.session.joined_topics:
        join.stop(decision, "the subscription changed")


def lose_coordinator(decision: DraftMemberDecision, _event: object) -> None:
    """D23: look for the coordinator, and keep reading meanwhile."""
    join.forget(decision)
    decision.enter(REDISCOVER)
    lookup.look_up(decision)


def lose_joined_coordinator(decision: DraftMemberDecision, _event: object) -> None:
    """The coordinator is lost during the join, which gets no answer: look it up."""
    join.forget(decision)
    if decision.session.callback is None:
        join.try_again_later(decision)
    lookup.look_up(decision)


def give_up_lookup(decision: DraftMemberDecision, event: LookupFailed) -> None:
    """Fail: the group has no coordinator for this consumer."""
    join.fail(decision, *lookup.end(decision, event))


# ------------------------------------------------------------------------------------------- time


def beat(decision: DraftMemberDecision, _event: HeartbeatDue) -> None:
    """D25: send one heartbeat at a time, as long as the application polls."""
    session = decision.session
    if not session.is_member:
        return
    decision.start(HEARTBEAT_DUE, heartbeat_interval_ms(decision.config))
    if session.coordinator_known and session.heartbeat is None and not is_silent(decision):
        request = DraftHeartbeatRequest(
            group_id=decision.config.group_id,
            group_generation_id=session.generation,
            consumer_id=session.member_id,
        )
        sent = decision.send(request)
        decision.session = replace(decision.session, heartbeat=sent)


def doubt_coordinator(decision: DraftMemberDecision, event: SessionOverdue) -> None:
    """D23: look the coordinator up: no answer for a whole session timeout, so it may have moved."""
    decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)
    if not is_silent(decision):
        lose_coordinator(decision, event)


def doubt_while_stopped(decision: DraftMemberDecision, event: SessionOverdue) -> None:
    """Do the same while the application gives its partitions up."""
    decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)
    if not is_silent(decision):
        lose_joined_coordinator(decision, event)
