"""Expired deadlines of members and rebalance phases, and the start of a loaded shard."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.fold import STORED
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.coordinator.events import (
    InitialDelayExpired,
    JoinExpired,
    LoadFinished,
    PendingExpired,
    SessionExpired,
    SyncExpired,
    Unload,
)
from kohort.group.events import Cause


def is_parked(decision: ClassicDecision, expired: SessionExpired) -> bool:
    """C17: return whether a request of the member is parked, which proves that it is alive.

    This excludes a new member: nothing would show that its client has given up.
    """
    group, member_id = decision.group, expired.member_id
    if group.members[member_id].is_new:
        return False
    return member_id in group.joining or member_id in group.syncing


def spare(_decision: ClassicDecision, _expired: SessionExpired) -> None:
    """C17, C43: the session starts again when the parked request is answered."""


def expire_member(decision: ClassicDecision, expired: SessionExpired) -> None:
    """C46: remove the member."""
    rebalance.remove_member(decision, expired.member_id, Cause.SESSION_EXPIRED)
    rebalance.start_or_continue(decision, Cause.SESSION_EXPIRED, expired.member_id)


def expire_pending(decision: ClassicDecision, expired: PendingExpired) -> None:
    """C15: the rebalance no longer waits for the client that got this id."""
    decision.group = decision.group.without_member(expired.member_id)


def expire_pending_join(decision: ClassicDecision, expired: PendingExpired) -> None:
    """C15, C16: the group may have waited for this member only."""
    expire_pending(decision, expired)
    rebalance.complete_if_all_joined(decision)


def expire_join(decision: ClassicDecision, _expired: JoinExpired) -> None:
    """C21: continue with the members that have joined."""
    rebalance.complete(decision)


def expire_initial_delay(decision: ClassicDecision, _expired: InitialDelayExpired) -> None:
    """C20: the delay is over, unless a member has joined and it pays to wait a little longer."""
    rebalance.extend_or_end_initial_delay(decision)


def expire_sync(decision: ClassicDecision, _expired: SyncExpired) -> None:
    """C42: remove members that did not ask for their assignment, also a missing leader."""
    absent = sorted(decision.group.unsynced)
    for member_id in absent:
        rebalance.remove_member(decision, member_id, Cause.SYNC_TIMED_OUT)
    rebalance.prepare(decision, Cause.SYNC_TIMED_OUT, absent[0])


# --------------------------------------------------------------------- the shard comes, and goes


def release(decision: ClassicDecision, _unload: Unload) -> None:
    """C73: answer parked requests: another broker is the coordinator now."""
    group = decision.group
    for member_id in sorted({*group.joining, *group.syncing}):
        rebalance.refuse_parked(decision, member_id, ErrorCode.NOT_COORDINATOR)
    decision.enter(GroupState.DEAD)


def is_too_large(decision: ClassicDecision, _loaded: LoadFinished) -> bool:
    """C72: return whether `group.max.size` was lowered in the meantime."""
    return len(decision.group.members) > decision.config.group_max_size


def restart_sessions(decision: ClassicDecision, _loaded: LoadFinished) -> None:
    """C72: the last heartbeats of the members are unknown: count from now."""
    for member in decision.group.sorted_members():
        rebalance.restart_session(decision, member)


def was_never_led(decision: ClassicDecision, _loaded: LoadFinished) -> bool:
    """K47: return whether it was a consumer group, and its first rebalance was not over."""
    stored = STORED.of(decision.log).get(decision.group.group_id)
    return stored is not None and bool(stored.members) and stored.leader is None


def begin_again(decision: ClassicDecision, loaded: LoadFinished) -> None:
    """K47: rebalance: no member has taken over the consumers' partitions yet."""
    restart_sessions(decision, loaded)
    rebalance.prepare(decision, Cause.COORDINATOR_UNLOADED, "")


def shrink(decision: ClassicDecision, loaded: LoadFinished) -> None:
    """C72: rebalance; the last members to join find no room (C14)."""
    restart_sessions(decision, loaded)
    rebalance.prepare(decision, Cause.GROUP_TOO_LARGE, "")
