"""Calls of the application, changes of the coordinator, and time: the rest of the table."""

from __future__ import annotations

from kohort.errors import LocalProtocolError
from kohort.group.member import lookup
from kohort.group.member.consumer import client_assignors, leave, rhythm
from kohort.group.member.consumer.answers import Remedy, remedy
from kohort.group.member.consumer.heartbeat_fields import heartbeat_request, present_fields
from kohort.group.member.consumer.session import ConsumerMemberDecision, ConsumerMemberState
from kohort.group.member.events import (
    HEARTBEAT_DUE,
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    LookupFailed,
    Subscribed,
)
from kohort.values import replace

# ------------------------------------------------------------------------------- the application


def is_open(decision: ConsumerMemberDecision, _call: Subscribed) -> bool:
    """Return whether the application has not closed the member."""
    return decision.session.closing is None


def note_topics(decision: ConsumerMemberDecision, call: Subscribed) -> None:
    """L32: store the subscription; the next poll joins."""
    if not call.topics and call.pattern is None:
        raise LocalProtocolError("a subscription to no topics is an unsubscribe")
    decision.session = replace(decision.session, topics=call.topics, pattern=call.pattern)


def resubscribe(decision: ConsumerMemberDecision, call: Subscribed) -> None:
    """L31: send the changed subscription to the coordinator at once."""
    before = decision.session
    note_topics(decision, call)
    if (before.topics, before.pattern) != (call.topics, call.pattern):
        client_assignors.announce(decision)
        rhythm.beat_soon(decision)


def want_nothing(decision: ConsumerMemberDecision, _call: object) -> None:
    """Clear the subscription; the member then need not join or rejoin."""
    decision.session = replace(decision.session, topics=frozenset(), pattern=None)


def unsubscribe(decision: ConsumerMemberDecision, call: object) -> None:
    """Give everything up and leave; the member can be used again."""
    want_nothing(decision, call)
    leave.start(decision, "the consumer unsubscribed from all topics")


def close(decision: ConsumerMemberDecision, call: Closing) -> None:
    """Give everything up and leave, for good."""
    close_afterwards(decision, call)
    leave.start(decision, "the consumer is being closed")


def close_afterwards(decision: ConsumerMemberDecision, call: Closing) -> None:
    """Close a member that has left or is leaving: it will not rejoin."""
    want_nothing(decision, call)
    decision.session = replace(decision.session, closing=call.operation)


def wants_to_join(decision: ConsumerMemberDecision, _call: object) -> bool:
    """Return whether there is a subscription."""
    return decision.session.wants


# ------------------------------------------------------------------------------- the coordinator


def note_coordinator(decision: ConsumerMemberDecision, event: CoordinatorKnown) -> None:
    """L31: the coordinator is known: a heartbeat that waited for it can be sent."""
    client_assignors.note_coordinator(decision, asks_members=event.asks_members)
    lookup.note_coordinator(decision)


def forget_coordinator(decision: ConsumerMemberDecision, _event: object) -> None:
    """The coordinator has moved; the next one gets a full heartbeat (L31)."""
    decision.session = replace(decision.session, coordinator_known=False, sent=None)


def find_coordinator(decision: ConsumerMemberDecision, event: object) -> None:
    """L36: the coordinator has moved or is gone: look it up; the member keeps its partitions."""
    forget_coordinator(decision, event)
    rhythm.beat_later(decision)


def has_moved(decision: ConsumerMemberDecision, answer: CommitAnswered) -> bool:
    """Return whether a commit's answer says that another broker is the coordinator."""
    moved = remedy(answer.error_code, is_member=True) is Remedy.FIND_COORDINATOR
    return moved and decision.session.coordinator_known


def give_up_lookup(decision: ConsumerMemberDecision, event: LookupFailed) -> None:
    """Fail: the group has no coordinator for this member."""
    leave.fail(decision, *lookup.end(decision, event))


# -------------------------------------------------------------------------------------- heartbeats


def beat(decision: ConsumerMemberDecision, _ready: object) -> None:
    """L31: send changed fields; all of them when joining and after an error."""
    fields = present_fields(decision.config, decision.session)
    decision.beat(heartbeat_request(decision.config, decision.session, fields))
    session = decision.session
    pattern_sent = session.pattern_sent or session.pattern is not None
    decision.session = replace(session, sent=fields, pattern_sent=pattern_sent)
    decision.cancel(HEARTBEAT_DUE)


LIVE = (
    ConsumerMemberState.JOINING,
    ConsumerMemberState.RECONCILING,
    ConsumerMemberState.ACKNOWLEDGING,
    ConsumerMemberState.STABLE,
    ConsumerMemberState.PREPARE_LEAVING,
)
