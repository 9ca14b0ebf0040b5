"""Calls of the application, news of the coordinator, and time: the rest of a member's table."""

from __future__ import annotations

from collections.abc import Callable

from kohort.errors import LocalProtocolError
from kohort.group.member import lookup
from kohort.group.member.consumer import client_assignors, coordinator, leave, reconcile, rhythm
from kohort.group.member.consumer.errors import Remedy, remedy
from kohort.group.member.consumer.heartbeat_fields import heartbeat_request, present_fields
from kohort.group.member.consumer.session import MemberDraft, MemberState
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


def is_open(draft: MemberDraft, _call: Subscribed) -> bool:
    """Whether the application has not closed the member."""
    return draft.session.closing is None


def note_topics(draft: MemberDraft, call: Subscribed) -> None:
    """L32: what it subscribes to; it is joined for with the next poll."""
    if not call.topics and call.pattern is None:
        raise LocalProtocolError("a subscription to no topics is an unsubscribe")
    draft.session = replace(draft.session, topics=call.topics, pattern=call.pattern)


def resubscribe(draft: MemberDraft, call: Subscribed) -> None:
    """L31: the coordinator hears of another subscription at once."""
    before = draft.session
    note_topics(draft, call)
    if (before.topics, before.pattern) != (call.topics, call.pattern):
        client_assignors.announce(draft)
        coordinator.beat_soon(draft)


def _want_nothing(draft: MemberDraft) -> None:
    draft.session = replace(draft.session, topics=frozenset(), pattern=None)


def want_nothing(draft: MemberDraft, _call: object) -> None:
    """It does not have to join, or to come back."""
    _want_nothing(draft)


def unsubscribe(draft: MemberDraft, _call: object) -> None:
    """Give everything up and leave; the member can be used again."""
    _want_nothing(draft)
    leave.start(draft, "the consumer unsubscribed from all topics")


def close(draft: MemberDraft, call: Closing) -> None:
    """Give everything up and leave, for good."""
    close_afterwards(draft, call)
    leave.start(draft, "the consumer is being closed")


def close_afterwards(draft: MemberDraft, call: Closing) -> None:
    """It has left or is leaving already; now it is for good."""
    _want_nothing(draft)
    draft.session = replace(draft.session, closing=call.operation)


def wants_to_join(draft: MemberDraft, _call: object) -> bool:
    """Whether there is a subscription."""
    return draft.session.wants


def join(draft: MemberDraft, _call: object) -> None:
    """L32: the first poll after a subscription joins."""
    leave.join(draft)


def note_poll(draft: MemberDraft, _call: object) -> None:
    """The application is alive (KIP-62)."""
    draft.start(POLL_OVERDUE, draft.config.max_poll_interval_ms)


def pass_over(_draft: MemberDraft, _event: object) -> None:
    """Nothing to do; when a wait is over, what it held back goes out by itself."""


def told(
    then: Callable[[MemberDraft, CallbackDone], None],
) -> Callable[[MemberDraft, CallbackDone], None]:
    """Return a handler: the application was told; note it, then go on."""

    def handler(draft: MemberDraft, done: CallbackDone) -> None:
        reconcile.finish_call(draft)
        then(draft, done)

    handler.__name__ = then.__name__
    return handler


# ------------------------------------------------------------------------------- the coordinator


def note_coordinator(draft: MemberDraft, event: CoordinatorKnown) -> None:
    """L31: it is known; what it was looked for, a heartbeat that is due, goes out now."""
    client_assignors.note_coordinator(draft, asks_members=event.asks_members)
    lookup.note_coordinator(draft)


def find_coordinator(draft: MemberDraft, _event: object) -> None:
    """L36: it has moved, or is gone; that alone changes nothing about what we own."""
    coordinator.forget(draft)
    coordinator.beat_later(draft)


def note_no_coordinator(draft: MemberDraft, _event: object) -> None:
    """Nobody needs it now."""
    coordinator.forget(draft)


def has_moved(draft: MemberDraft, answer: CommitAnswered) -> bool:
    """Whether a commit was told that the coordinator is another broker."""
    moved = remedy(answer.error_code, is_member=True) is Remedy.FIND_COORDINATOR
    return moved and draft.session.coordinator_known


def give_up_lookup(draft: MemberDraft, event: LookupFailed) -> None:
    """The group has no coordinator for us."""
    leave.fail(draft, *lookup.end(draft, event))


# -------------------------------------------------------------------------------------- heartbeats


def beat_due(draft: MemberDraft, _event: HeartbeatDue) -> None:
    """L31: the pause is over."""
    rhythm.end_pause(draft)


def beat(draft: MemberDraft, _ready: object) -> None:
    """L31: say what changed; everything when joining and after an error."""
    fields = present_fields(draft.config, draft.session)
    draft.send(heartbeat_request(draft.config, draft.session, fields))
    session = draft.session
    pattern_sent = session.pattern_sent or session.pattern is not None
    draft.session = replace(session, sent=fields, pattern_sent=pattern_sent)
    draft.cancel(HEARTBEAT_DUE)


def acknowledge(draft: MemberDraft, ready: object) -> None:
    """L32: this heartbeat says what we have; then on to what came meanwhile, if anything."""
    beat(draft, ready)
    reconcile.begin(draft)


def never(draft: MemberDraft, event: object) -> None:
    """An event that this state has prevented."""
    raise AssertionError(f"{type(event).__name__} in {draft.state.name}")


LIVE = (
    MemberState.JOINING,
    MemberState.RECONCILING,
    MemberState.ACKNOWLEDGING,
    MemberState.STABLE,
    MemberState.PREPARE_LEAVING,
)
