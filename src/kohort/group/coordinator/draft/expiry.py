"""What happens when time is up (D12, D13)."""

from __future__ import annotations

from kohort.group.coordinator.draft import rebalance
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.events import JoinExpired, SessionExpired
from kohort.group.events import Cause


def is_parked(decision: DraftDecision, expired: SessionExpired) -> bool:
    """Whether the consumer waits for us, which counts as being alive."""
    return expired.member_id in decision.group.joining


def spare(_decision: DraftDecision, _expired: SessionExpired) -> None:
    """Its session starts anew when its join is answered."""


def expire_consumer(decision: DraftDecision, expired: SessionExpired) -> None:
    """D12: it is dead, and its partitions go to the others."""
    rebalance.remove(decision, expired.member_id, Cause.SESSION_EXPIRED)
    rebalance.prepare(decision, Cause.SESSION_EXPIRED, expired.member_id)


def expire_absent(decision: DraftDecision, expired: SessionExpired) -> None:
    """D12: it died during the rebalance; it may have been the last one that was waited for."""
    rebalance.remove(decision, expired.member_id, Cause.SESSION_EXPIRED)
    rebalance.go_on_if_all_joined(decision)


def expire_join(decision: DraftDecision, _expired: JoinExpired) -> None:
    """D13: go on with those who have come."""
    rebalance.go_on(decision)


def never(_decision: DraftDecision, expired: tuple[str, ...]) -> None:
    """A deadline that cannot run in this state: it is cancelled when the state is left."""
    raise AssertionError(f"{type(expired).__name__} ran in a state that has none: {expired}")
