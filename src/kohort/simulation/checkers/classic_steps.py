"""S7, S18: effects of deadlines and requests on a classic group, checked after each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.coordinator.events import (
    InitialDelayExpired,
    JoinExpired,
    PendingExpired,
    RequestArrived,
    RetentionCheckDue,
    SessionExpired,
    SyncExpired,
    Tick,
    TopicsDeleted,
)
from kohort.group.coordinator.session import Lifecycle
from kohort.simulation.checkers.classic_answers import classic_group
from kohort.simulation.groups.facts import Loaded, Stepped
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.rules import rule
from kohort.wire.messages.membership import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld

DEAD, EMPTY = GroupState.DEAD, GroupState.EMPTY
PREPARING, COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
Later: TypeAlias = Callable[[Stepped, Any, ClassicGroup, ClassicGroup], "str | None"]


def _now(step: Stepped, group_id: str) -> ClassicGroup:
    return step.node.shard.session.group(step.node.shard.log, group_id)


def _is_set(step: Stepped, deadline: Any) -> bool:  # noqa: ANN401  # any deadline
    return step.node.shard.session.deadlines.get(deadline) is not None


# ------------------------------------------------------------------------------------- time


def _pending(
    _step: Stepped, due: PendingExpired, was: ClassicGroup, group: ClassicGroup
) -> str | None:
    """C15: an issued id that is not used is dropped."""
    if due.member_id in group.pending:
        return "an id is still waited for, though its time is over"
    if was.state is not PREPARING and (group.state, group.generation) != (
        was.state,
        was.generation,
    ):
        return "an id that did not come back ends a generation"
    return None


def _session(
    step: Stepped, due: SessionExpired, was: ClassicGroup, group: ClassicGroup
) -> str | None:
    """C17, C43, C46: the session of a silent member ends, but not while its request is parked."""
    parked = due.member_id in was.joining or due.member_id in was.syncing
    if parked and not was.members[due.member_id].is_new:
        if (group, step.effects.replies) == (was, ()):
            return None
        return f"the session of {due.member_id} ended, which waits for us"
    if due.member_id in group.members:
        return f"{due.member_id} is a member, though its session is over"
    if was.state is not PREPARING and group.generation == was.generation:
        return None if group.state is PREPARING else "a member is dead and there is no rebalance"
    return None


def _join(step: Stepped, due: JoinExpired, was: ClassicGroup, group: ClassicGroup) -> str | None:
    """C21, C22: the join phase ends, late dynamic members are removed, and there is a leader."""
    if group.state is not PREPARING:
        return None
    if group.joining:
        return "the time to join is over, and joined members wait"
    dynamic = [m for m in group.members.values() if m.group_instance_id is None]
    if dynamic:
        return "the time to join is over, and a missing member is still in the group"
    return None if _is_set(step, due) else f"nothing ends the rebalance of {was.group_id}"


def _initial(
    step: Stepped, due: InitialDelayExpired, was: ClassicGroup, group: ClassicGroup
) -> str | None:
    """C20: the first rebalance of an empty group waits for more members, for a limited time."""
    if was.member_added and was.delay_left_ms:
        waits = group.state is PREPARING and _is_set(step, due)
        return None if waits else "the first rebalance does not wait for more members"
    return (
        "the first rebalance never begins" if group.state is PREPARING and group.joining else None
    )


def _sync(_step: Stepped, _due: SyncExpired, was: ClassicGroup, group: ClassicGroup) -> str | None:
    """C42: members that did not sync in time are removed."""
    late = [member_id for member_id in was.unsynced if member_id in group.members]
    if late:
        return f"{late[0]} never asked for its assignment and is still a member"
    return "a late member was removed, and there is no rebalance" if group.state is STABLE else None


_LATER: dict[type, Later] = {
    PendingExpired: _pending,
    SessionExpired: _session,
    JoinExpired: _join,
    InitialDelayExpired: _initial,
    SyncExpired: _sync,
}


@rule(
    "S7",
    "Classic: an expired deadline has its effect (C15-C22, C42-C46).",
    Stepped,
    about=(Tick,),
)
def time_is_kept(world: BaseWorld, step: Stepped) -> str | None:
    """Check the effect of the deadline that was handled."""
    if not isinstance(step.event, Tick) or step.session.lifecycle is not Lifecycle.READY:
        return None
    earliest = step.session.deadlines.next()
    if earliest is None or earliest[0] > world.engine.now:
        return None
    due: Any = earliest[1]
    if isinstance(due, RetentionCheckDue):
        return _retention(step)
    later = _LATER.get(type(due))
    was = classic_group(step, due.group_id) if later is not None else None
    if later is None or was is None:
        return None
    return later(step, due, was, _now(step, due.group_id))


def _retention(step: Stepped) -> str | None:
    """C60: old positions of unused groups are deleted, others stay."""
    if not _is_set(step, RetentionCheckDue()) and step.node.shard.log.offsets:
        return "no later check for old positions is planned"
    wall_ms = step.event.wall_ms if isinstance(step.event, Tick) else 0
    for group_id in step.session.group_ids(step.log):
        group = classic_group(step, group_id)
        complaint = None if group is None else _kept(step, group, wall_ms)
        if complaint is not None:
            return complaint
    return None


def _kept(step: Stepped, group: ClassicGroup, wall_ms: int) -> str | None:
    """Compare the positions of a group before and after."""
    group_id = group.group_id
    stored = step.log.groups.get(group_id)
    empty_since = stored.state_timestamp if stored is not None and stored.protocol_type else -1
    retention_ms = step.node.shard.config.offsets_retention_ms
    before, after = step.log.offsets_of(group_id), step.node.shard.log.offsets_of(group_id)
    for partition, position in before.items():
        since = empty_since if empty_since >= 0 else position.commit_timestamp
        if group.state is STABLE:
            since = position.commit_timestamp
        old = wall_ms - since >= retention_ms
        used = group.state in (PREPARING, COMPLETING) or (
            group.state is STABLE
            and (group.protocol_type != "consumer" or group.is_subscribed_to(partition.topic))
        )
        if (partition in after) != (used or not old):
            kept = "kept" if partition in after else "forgotten"
            return f"the position of {partition} is {kept}, {group.state.name}, old: {old}"
    if group.state is EMPTY and not after and group_id in step.node.shard.log.groups:
        return f"{group_id} has neither members nor positions, and is kept"
    if group.members and _now(step, group_id).state is DEAD:
        return f"{group_id} has members, and is forgotten"
    return None


# ------------------------------------------------------------------------------------- after a step


@rule(
    "S18",
    "Classic: every wait of a group has a deadline.",
    Stepped,
    Loaded,
)
def waiting_ends(_world: BaseWorld, fact: Stepped | Loaded) -> str | None:
    """Look for missing deadlines, and for rebalances that have nothing to wait for."""
    node = fact.node
    if isinstance(fact, Stepped) and fact.session.groups is node.shard.session.groups:
        return None
    session = node.shard.session
    if session.lifecycle is not Lifecycle.READY:
        return None
    deadlines = session.deadlines
    for group_id, group in sorted(session.groups.items()):
        for member_id in group.pending:
            if deadlines.get(PendingExpired(group_id, member_id)) is None:
                return f"the id {member_id} is waited for without end"
        if group.state is PREPARING:
            first = deadlines.get(InitialDelayExpired(group_id)) is not None
            if not first and deadlines.get(JoinExpired(group_id)) is None:
                return "nothing ends the time to join"
            if group.all_joined and not group.initial:
                return "all members have joined and the rebalance does not go on"
        elif group.unsynced and deadlines.get(SyncExpired(group_id)) is None:
            return "nothing ends the wait for the assignment"
    return None


_CALM = (HeartbeatRequest, OffsetCommitRequest, OffsetDeleteRequest, SyncGroupRequest)


@rule(
    "S5",
    "Classic: only joins, leaves, the leader's assignment and time change a group's state (C5).",
    Stepped,
    about=_CALM,
)
def others_change_nothing(_world: BaseWorld, step: Stepped) -> str | None:
    """Check requests that must not change a group."""
    if not isinstance(step.event, RequestArrived) or step.session.lifecycle is not Lifecycle.READY:
        return None
    request: Any = step.event.request
    was = classic_group(step, request.group_id)
    if was is None:
        return None
    group = _now(step, request.group_id)
    allowed = {was.state}
    if isinstance(request, OffsetCommitRequest) and was.state is DEAD:
        allowed = {DEAD, EMPTY}
    if isinstance(request, SyncGroupRequest) and request.member_id == was.leader:
        allowed.add(STABLE)
    if group.state not in allowed or group.generation != was.generation:
        return f"{type(request).__name__} takes {was.state.name} to {group.state.name}"
    return None


@rule(
    "S2",
    "Classic: an accepted request of a member restarts its session (C44, C51).",
    Stepped,
    about=(HeartbeatRequest, OffsetCommitRequest),
)
def sessions_are_renewed(world: BaseWorld, step: Stepped) -> str | None:
    """Check the session of a member whose heartbeat or commit was accepted."""
    event = step.event
    if not isinstance(event, RequestArrived):
        return None
    request: Any = event.request
    if not isinstance(request, (HeartbeatRequest, OffsetCommitRequest)):
        return None
    was = classic_group(step, request.group_id)
    member = was.members.get(request.member_id) if was is not None else None
    if was is None or member is None or step.session.lifecycle is not Lifecycle.READY:
        return None
    is_commit = isinstance(request, OffsetCommitRequest)
    generation = (
        request.generation_id_or_member_epoch
        if isinstance(request, OffsetCommitRequest)
        else request.generation_id
    )
    if generation != was.generation or (is_commit and was.state is COMPLETING):
        return None
    if request.group_instance_id and was.static.get(request.group_instance_id) != request.member_id:
        return None
    due = step.node.shard.session.deadlines.get(SessionExpired(was.group_id, member.member_id))
    if due is not None and due >= world.engine.now + member.session_timeout_ms:
        return None
    return f"a request of {member.member_id} was accepted, and its session ends at {due}"


@rule(
    "S16",
    "Classic: a member that has left is not in the group (C47).",
    Stepped,
    about=(LeaveGroupRequest,),
)
def good_byes_count(_world: BaseWorld, step: Stepped) -> str | None:
    """Look for members and ids that have left."""
    event = step.event
    if not isinstance(event, RequestArrived) or not isinstance(event.request, LeaveGroupRequest):
        return None
    was = classic_group(step, event.request.group_id)
    if was is None or event.version < 3 or step.session.lifecycle is not Lifecycle.READY:
        return None
    group = _now(step, event.request.group_id)
    static: dict[str | None, str] = {
        each.group_instance_id: each.member_id for each in was.members.values()
    }
    for identity in event.request.members:
        gone = identity.member_id or static.get(identity.group_instance_id, "")
        fenced = static.get(identity.group_instance_id, gone) != gone
        if identity.group_instance_id is not None and fenced:
            continue
        if gone in group.members or gone in group.pending:
            return f"{gone} has left and is still in the group"
    return None


@rule(
    "S11",
    "Deleting a topic deletes its positions (C61).",
    Stepped,
    about=(TopicsDeleted,),
)
def deleted_topics_have_no_positions(_world: BaseWorld, step: Stepped) -> str | None:
    """Look for positions in deleted topics."""
    if not isinstance(step.event, TopicsDeleted) or step.session.lifecycle is not Lifecycle.READY:
        return None
    for group_id, offsets in step.node.shard.log.offsets.items():
        for partition in offsets:
            if partition.topic in step.event.topics:
                return f"{group_id} has a position in {partition}, which is gone"
    return None


@rule(
    "S7",
    "Classic: after a load the group matches its log, and begins a rebalance only if it has"
    " become too large or has no leader (C72, K47).",
    Loaded,
)
def loaded_as_stored(_world: BaseWorld, fact: Loaded) -> str | None:
    """Compare the group with the log."""
    shard = fact.node.shard
    stored = shard.log.groups.get(GROUP)
    if stored is None or not stored.members:
        return None
    group = shard.session.group(shard.log, GROUP)
    too_large = len(stored.members) > shard.config.group_max_size
    wanted = PREPARING if too_large or stored.leader is None else STABLE
    return None if group.state is wanted else f"the group is {group.state.name} after a load"
