"""The shard goes away (C73), or has just come (C72)."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.decision import ClassicDecision
from kohort.group.coordinator.classic.group import GroupState
from kohort.group.coordinator.events import LoadFinished, Unload
from kohort.group.events import Cause


def release(decision: ClassicDecision, _unload: Unload) -> None:
    """C73: who waits for an answer is told to look for the new coordinator."""
    group = decision.group
    for member_id in sorted({*group.joining, *group.syncing}):
        rebalance.refuse_parked(decision, member_id, ErrorCode.NOT_COORDINATOR)
    decision.enter(GroupState.DEAD)


def is_too_large(decision: ClassicDecision, _loaded: LoadFinished) -> bool:
    """C72: whether `group.max.size` was lowered in the meantime."""
    return len(decision.group.members) > decision.config.group_max_size


def restart_sessions(decision: ClassicDecision, _loaded: LoadFinished) -> None:
    """C72: nobody knows when the members were last heard of: count from now."""
    for member in decision.group.sorted_members():
        rebalance.restart_session(decision, member)


def was_never_led(decision: ClassicDecision, _loaded: LoadFinished) -> bool:
    """K47: whether the group was a consumer group, and its first rebalance was not over."""
    stored = decision.log.groups.get(decision.group.group_id)
    return stored is not None and bool(stored.members) and stored.leader is None


def begin_again(decision: ClassicDecision, loaded: LoadFinished) -> None:
    """K47: nobody has taken over yet what the consumers had."""
    restart_sessions(decision, loaded)
    rebalance.prepare(decision, Cause.COORDINATOR_UNLOADED, "")


def shrink(decision: ClassicDecision, loaded: LoadFinished) -> None:
    """C72: a rebalance, in which the last to come find no room (C14)."""
    restart_sessions(decision, loaded)
    rebalance.prepare(decision, Cause.GROUP_TOO_LARGE, "")
