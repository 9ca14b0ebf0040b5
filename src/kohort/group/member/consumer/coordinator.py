"""Finding the coordinator, losing it, and waiting before the next try."""

from __future__ import annotations

from kohort.group.member.consumer.session import ConsumerMemberDecision
from kohort.group.member.events import HEARTBEAT_DUE, RETRY_DUE
from kohort.values import replace


def forget(decision: ConsumerMemberDecision) -> None:
    """The coordinator is not where it was; to the next one everything is said anew (L31)."""
    decision.session = replace(decision.session, coordinator_known=False, sent=None)


def beat_soon(decision: ConsumerMemberDecision) -> None:
    """Send a heartbeat as soon as that is possible."""
    decision.session = replace(decision.session, is_due=True)


def beat_later(decision: ConsumerMemberDecision) -> None:
    """A heartbeat failed: a full one goes out after a wait, each time a longer one (KIP-580)."""
    session = decision.session = replace(
        decision.session, sent=None, is_due=True, failures=decision.session.failures + 1
    )
    decision.cancel(HEARTBEAT_DUE)
    decision.start(RETRY_DUE, decision.config.backoff_ms(session.failures))


def can_beat(decision: ConsumerMemberDecision) -> bool:
    """Whether the heartbeat that is due can go out now: one in flight, none during a wait."""
    session = decision.session
    waits = session.deadlines.get(RETRY_DUE) is not None
    return session.coordinator_known and session.heartbeat is None and not waits
