"""What happens when time is up: sessions, pending ids, the phases of a rebalance."""

from __future__ import annotations

from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.events import (
    InitialDelayExpired,
    JoinExpired,
    PendingExpired,
    SessionExpired,
    SyncExpired,
)
from kohort.group.events import Cause


def is_parked(decision: ClassicDecision, expired: SessionExpired) -> bool:
    """C17: whether the member waits for us, which counts as being alive.

    Not so for a new member: nothing would tell us that its client has given up.
    """
    group, member_id = decision.group, expired.member_id
    if group.members[member_id].is_new:
        return False
    return member_id in group.joining or member_id in group.syncing


def spare(_decision: ClassicDecision, _expired: SessionExpired) -> None:
    """C17, C43: the session starts anew when the parked request is answered."""


def expire_member(decision: ClassicDecision, expired: SessionExpired) -> None:
    """C46: the member is out."""
    rebalance.remove_member(decision, expired.member_id, Cause.SESSION_EXPIRED)
    rebalance.start_or_continue(decision, Cause.SESSION_EXPIRED, expired.member_id)


def expire_pending(decision: ClassicDecision, expired: PendingExpired) -> None:
    """C15: whoever was told this id is not waited for any longer."""
    decision.group = decision.group.without_member(expired.member_id)


def expire_pending_join(decision: ClassicDecision, expired: PendingExpired) -> None:
    """C15, C16: it may have been the last one that the group waited for."""
    expire_pending(decision, expired)
    rebalance.complete_if_all_joined(decision)


def expire_join(decision: ClassicDecision, _expired: JoinExpired) -> None:
    """C21: go on with those who are there."""
    rebalance.complete(decision)


def expire_initial_delay(decision: ClassicDecision, _expired: InitialDelayExpired) -> None:
    """C20: enough waited, or somebody came and it pays to wait a little more."""
    rebalance.extend_or_end_initial_delay(decision)


def expire_sync(decision: ClassicDecision, _expired: SyncExpired) -> None:
    """C42: who did not ask for its assignment is out; works for a missing leader too."""
    absent = sorted(decision.group.unsynced)
    for member_id in absent:
        rebalance.remove_member(decision, member_id, Cause.SYNC_TIMED_OUT)
    rebalance.prepare(decision, Cause.SYNC_TIMED_OUT, absent[0])


def never(_decision: ClassicDecision, expired: tuple[str, ...]) -> None:
    """A deadline that cannot run in this state: it is cancelled when the state is left."""
    raise AssertionError(f"{type(expired).__name__} ran in a state that has none: {expired}")
