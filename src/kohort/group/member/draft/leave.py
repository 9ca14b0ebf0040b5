"""Leaving (D20): the design has no leave request; a leaving consumer stops its heartbeats.

The others get its partitions when its session has expired at the coordinator.
"""

from __future__ import annotations

from kohort.group.member.draft import join
from kohort.group.member.draft.session import DraftMemberDecision, DraftMemberState
from kohort.group.member.events import RETRY_DUE, SESSION_OVERDUE, Closing, Subscribed, Unsubscribed
from kohort.group.subscription import NO_GENERATION
from kohort.values import replace

DOWN, CLOSED = DraftMemberState.DOWN, DraftMemberState.CLOSED
DISCOVER = DraftMemberState.DISCOVER_COORDINATOR


def unsubscribe(decision: DraftMemberDecision, _call: Unsubscribed) -> None:
    """Give everything up; the consumer can be used again."""
    _start(decision, DOWN, "the consumer unsubscribed from all topics")


def close(decision: DraftMemberDecision, _call: Closing) -> None:
    """Give everything up, for good."""
    _start(decision, CLOSED, "the consumer is being closed")


def close_at_once(decision: DraftMemberDecision, _call: Closing) -> None:
    """Close a consumer that owns nothing."""
    decision.enter(CLOSED)


def close_afterwards(decision: DraftMemberDecision, _call: Closing) -> None:
    """Close a consumer that is already leaving: it will not rejoin."""
    decision.session = replace(decision.session, topics=frozenset(), after_leaving=CLOSED)


def unsubscribe_afterwards(decision: DraftMemberDecision, _call: Unsubscribed) -> None:
    """Unsubscribe a consumer that is already leaving: it will not rejoin."""
    after = CLOSED if decision.session.after_leaving is CLOSED else DOWN
    decision.session = replace(decision.session, topics=frozenset(), after_leaving=after)


def comes_back(decision: DraftMemberDecision, _call: Subscribed) -> bool:
    """Return whether the consumer will rejoin after leaving."""
    return decision.session.after_leaving is not CLOSED


def _start(decision: DraftMemberDecision, after: DraftMemberState, reason: str) -> None:
    decision.session = replace(
        decision.session, topics=frozenset(), after_leaving=after, request=None
    )
    decision.cancel(RETRY_DUE, SESSION_OVERDUE)
    decision.enter(DraftMemberState.LEAVING, reason)
    go_on(decision)


def go_on(decision: DraftMemberDecision, _done: object = None) -> None:
    """Take the next step: finish the open call, give up owned partitions, stop heartbeats."""
    if decision.session.callback is not None:
        return
    if decision.session.consuming:
        join.give_up(decision)
    else:
        _finish(decision)


def _finish(decision: DraftMemberDecision) -> None:
    """D8: keep the id until the consumer is shut down, so that it can rejoin with it."""
    after = decision.session.after_leaving
    decision.cancel(*decision.session.deadlines.due_times())
    decision.session = replace(
        decision.session,
        member_id="" if after is CLOSED else decision.session.member_id,
        generation=NO_GENERATION,
        heartbeat=None,
        failures=0,
    )
    decision.enter(after)
    if after is DISCOVER:
        join.go_on(decision)
