"""Leaving (D20): the design has no request for it, so a consumer that goes just falls silent.

The others get its partitions when its session has ended at the coordinator.
"""

from __future__ import annotations

from kohort.group.member.draft import join
from kohort.group.member.draft.session import DraftMemberState, MemberChange
from kohort.group.member.events import (
    RETRY_DUE,
    SESSION_OVERDUE,
    Closing,
    Subscribed,
    Unsubscribed,
)
from kohort.group.subscription import NO_GENERATION
from kohort.values import replace

DOWN, CLOSED = DraftMemberState.DOWN, DraftMemberState.CLOSED
DISCOVER = DraftMemberState.DISCOVER_COORDINATOR


def unsubscribe(change: MemberChange, _call: Unsubscribed) -> None:
    """Give everything up; the consumer can be used again."""
    _start(change, DOWN, "the consumer unsubscribed from all topics")


def close(change: MemberChange, _call: Closing) -> None:
    """Give everything up, for good."""
    _start(change, CLOSED, "the consumer is being closed")


def close_at_once(change: MemberChange, _call: Closing) -> None:
    """There is nothing to give up."""
    change.enter(CLOSED)


def close_afterwards(change: MemberChange, _call: Closing) -> None:
    """It is leaving already; now it is for good."""
    change.session = replace(change.session, topics=frozenset(), after_leaving=CLOSED)


def unsubscribe_afterwards(change: MemberChange, _call: Unsubscribed) -> None:
    """It is leaving already; it does not have to come back."""
    after = CLOSED if change.session.after_leaving is CLOSED else DOWN
    change.session = replace(change.session, topics=frozenset(), after_leaving=after)


def comes_back(change: MemberChange, _call: Subscribed) -> bool:
    """Whether the consumer leaves only for now."""
    return change.session.after_leaving is not CLOSED


def _start(change: MemberChange, after: DraftMemberState, reason: str) -> None:
    change.session = replace(change.session, topics=frozenset(), after_leaving=after, request=None)
    change.cancel(RETRY_DUE, SESSION_OVERDUE)
    change.enter(DraftMemberState.LEAVING, reason)
    go_on(change)


def go_on(change: MemberChange) -> None:
    """Take the next step: finish the open call, give up what is owned, be silent."""
    if change.session.callback is not None:
        return
    if change.session.consuming:
        join.give_up(change)
    else:
        _finish(change)


def _finish(change: MemberChange) -> None:
    """D8: an id is good until the consumer is shut down: it may come back with it."""
    after = change.session.after_leaving
    change.cancel(*change.session.deadlines.due_times())
    change.session = replace(
        change.session,
        member_id="" if after is CLOSED else change.session.member_id,
        generation=NO_GENERATION,
        heartbeat=None,
        failures=0,
    )
    change.enter(after)
    if after is DISCOVER:
        join.go_on(change)
