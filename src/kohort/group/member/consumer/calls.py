"""Calls of the application, news of the coordinator, and time: the rest of a member's table."""

from __future__ import annotations

from collections.abc import Callable

from kohort.errors import LocalProtocolError
from kohort.group.member import lookup
from kohort.group.member.consumer import client_assignors, coordinator, leave, reconcile, rhythm
from kohort.group.member.consumer.errors import Remedy, remedy
from kohort.group.member.consumer.heartbeat_fields import heartbeat_request, present_fields
from kohort.group.member.consumer.session import ConsumerMemberDecision, MemberState
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    POLL_OVERDUE,
    CallbackDone,
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    HeartbeatDue,
    LookupFailed,
    Subscribed,
)
from kohort.values import replace

# ------------------------------------------------------------------------------- the application


def is_open(decision: ConsumerMemberDecision, _call: Subscribed) -> bool:
    """Whether the application has not closed the member."""
    return decision.session.closing is None


def note_topics(decision: ConsumerMemberDecision, call: Subscribed) -> None:
    """L32: what it subscribes to; it is joined for with the next poll."""
    if not call.topics and call.pattern is None:
        raise LocalProtocolError("a subscription to no topics is an unsubscribe")
    decision.session = replace(decision.session, topics=call.topics, pattern=call.pattern)


def resubscribe(decision: ConsumerMemberDecision, call: Subscribed) -> None:
    """L31: the coordinator hears of another subscription at once."""
    before = decision.session
    note_topics(decision, call)
    if (before.topics, before.pattern) != (call.topics, call.pattern):
        client_assignors.announce(decision)
        coordinator.beat_soon(decision)


def _want_nothing(decision: ConsumerMemberDecision) -> None:
    decision.session = replace(decision.session, topics=frozenset(), pattern=None)


def want_nothing(decision: ConsumerMemberDecision, _call: object) -> None:
    """It does not have to join, or to come back."""
    _want_nothing(decision)


def unsubscribe(decision: ConsumerMemberDecision, _call: object) -> None:
    """Give everything up and leave; the member can be used again."""
    _want_nothing(decision)
    leave.start(decision, "the consumer unsubscribed from all topics")


def close(decision: ConsumerMemberDecision, call: Closing) -> None:
    """Give everything up and leave, for good."""
    close_afterwards(decision, call)
    leave.start(decision, "the consumer is being closed")


def close_afterwards(decision: ConsumerMemberDecision, call: Closing) -> None:
    """It has left or is leaving already; now it is for good."""
    _want_nothing(decision)
    decision.session = replace(decision.session, closing=call.operation)


def wants_to_join(decision: ConsumerMemberDecision, _call: object) -> bool:
    """Whether there is a subscription."""
    return decision.session.wants


def join(decision: ConsumerMemberDecision, _call: object) -> None:
    """L32: the first poll after a subscription joins."""
    leave.join(decision)


def note_poll(decision: ConsumerMemberDecision, _call: object) -> None:
    """The application is alive (KIP-62)."""
    decision.start(POLL_OVERDUE, decision.config.max_poll_interval_ms)


def pass_over(_decision: ConsumerMemberDecision, _event: object) -> None:
    """Nothing to do; when a wait is over, what it held back goes out by itself."""


def told(
    then: Callable[[ConsumerMemberDecision, CallbackDone], None],
) -> Callable[[ConsumerMemberDecision, CallbackDone], None]:
    """Return a handler: the application was told; note it, then go on."""

    def handler(decision: ConsumerMemberDecision, done: CallbackDone) -> None:
        reconcile.finish_call(decision)
        then(decision, done)

    handler.__name__ = then.__name__
    return handler


# ------------------------------------------------------------------------------- the coordinator


def note_coordinator(decision: ConsumerMemberDecision, event: CoordinatorKnown) -> None:
    """L31: it is known; what it was looked for, a heartbeat that is due, goes out now."""
    client_assignors.note_coordinator(decision, asks_members=event.asks_members)
    lookup.note_coordinator(decision)


def find_coordinator(decision: ConsumerMemberDecision, _event: object) -> None:
    """L36: it has moved, or is gone; that alone changes nothing about what we own."""
    coordinator.forget(decision)
    coordinator.beat_later(decision)


def note_no_coordinator(decision: ConsumerMemberDecision, _event: object) -> None:
    """Nobody needs it now."""
    coordinator.forget(decision)


def has_moved(decision: ConsumerMemberDecision, answer: CommitAnswered) -> bool:
    """Whether a commit was told that the coordinator is another broker."""
    moved = remedy(answer.error_code, is_member=True) is Remedy.FIND_COORDINATOR
    return moved and decision.session.coordinator_known


def give_up_lookup(decision: ConsumerMemberDecision, event: LookupFailed) -> None:
    """The group has no coordinator for us."""
    leave.fail(decision, *lookup.end(decision, event))


# -------------------------------------------------------------------------------------- heartbeats


def beat_due(decision: ConsumerMemberDecision, _event: HeartbeatDue) -> None:
    """L31: the pause is over."""
    rhythm.end_pause(decision)


def beat(decision: ConsumerMemberDecision, _ready: object) -> None:
    """L31: say what changed; everything when joining and after an error."""
    fields = present_fields(decision.config, decision.session)
    decision.send(heartbeat_request(decision.config, decision.session, fields))
    session = decision.session
    pattern_sent = session.pattern_sent or session.pattern is not None
    decision.session = replace(session, sent=fields, pattern_sent=pattern_sent)
    decision.cancel(HEARTBEAT_DUE)


def acknowledge(decision: ConsumerMemberDecision, ready: object) -> None:
    """L32: this heartbeat says what we have; then on to what came meanwhile, if anything."""
    beat(decision, ready)
    reconcile.begin(decision)


def never(decision: ConsumerMemberDecision, event: object) -> None:
    """An event that this state has prevented."""
    raise AssertionError(f"{type(event).__name__} in {decision.state.name}")


LIVE = (
    MemberState.JOINING,
    MemberState.RECONCILING,
    MemberState.ACKNOWLEDGING,
    MemberState.STABLE,
    MemberState.PREPARE_LEAVING,
)
