"""What happens when time is up (D12, D13)."""

from __future__ import annotations

from kohort.group.coordinator.draft import rebalance
from kohort.group.coordinator.draft.change import GroupChange
from kohort.group.coordinator.events import JoinExpired, SessionExpired
from kohort.group.events import Cause


def is_parked(change: GroupChange, expired: SessionExpired) -> bool:
    """Whether the consumer waits for us, which counts as being alive."""
    return expired.member_id in change.group.joining


def spare(_change: GroupChange, _expired: SessionExpired) -> None:
    """Its session starts anew when its join is answered."""


def expire_consumer(change: GroupChange, expired: SessionExpired) -> None:
    """D12: it is dead, and its partitions go to the others."""
    rebalance.remove(change, expired.member_id, Cause.SESSION_EXPIRED)
    rebalance.prepare(change, Cause.SESSION_EXPIRED, expired.member_id)


def expire_absent(change: GroupChange, expired: SessionExpired) -> None:
    """D12: it died during the rebalance; it may have been the last one that was waited for."""
    rebalance.remove(change, expired.member_id, Cause.SESSION_EXPIRED)
    rebalance.go_on_if_all_joined(change)


def expire_join(change: GroupChange, _expired: JoinExpired) -> None:
    """D13: go on with those who have come."""
    rebalance.go_on(change)


def never(_change: GroupChange, expired: tuple[str, ...]) -> None:
    """A deadline that cannot run in this state: it is cancelled when the state is left."""
    raise AssertionError(f"{type(expired).__name__} ran in a state that has none: {expired}")
