"""SyncGroup (C40-C43), Heartbeat (C44) and OffsetCommit (C51)."""

from __future__ import annotations

from typing import TypeAlias

from immutables import Map

from kohort.errors import ErrorCode, RemoteProtocolError
from kohort.group.coordinator import services
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.fold import STORED
from kohort.group.coordinator.classic.group import (
    ClassicDecision,
    ClassicGroup,
    GroupState,
    generation_error,
)
from kohort.group.coordinator.events import RequestArrived, SyncExpired
from kohort.group.coordinator.refusals import sync_refused
from kohort.group.coordinator.session import Parked
from kohort.group.subscription import PROTOCOL_TYPE, decode_assignment
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

Sync: TypeAlias = RequestArrived[SyncGroupRequest]
Heartbeat: TypeAlias = RequestArrived[HeartbeatRequest]

_ALIVE = HeartbeatResponse(error_code=ErrorCode.NONE)


def sync_error(decision: ClassicDecision, sync: Sync) -> ErrorCode | None:
    """C40: return the error for a sync with a wrong member, generation or protocol."""
    group, request = decision.group, sync.request
    error = generation_error(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if error is not None:
        return error
    same_type = request.protocol_type in (None, group.protocol_type)
    same_name = request.protocol_name in (None, group.protocol)
    return None if same_type and same_name else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def send_back(decision: ClassicDecision, sync: Sync) -> None:
    """C41: tell the member to rejoin: the next rebalance has begun."""
    decision.reply(sync.token, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS), sync.version)


def is_leader(decision: ClassicDecision, sync: Sync) -> bool:
    """Return whether the sender is the leader, whose sync has the assignment."""
    return sync.request.member_id == decision.group.leader


def park(decision: ClassicDecision, sync: Sync) -> None:
    """C41: park the sync until the leader's arrives."""
    group, member_id = decision.group, sync.request.member_id
    earlier = group.syncing.get(member_id)
    if earlier is not None:
        refused = sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)
        decision.reply(earlier.token, refused, earlier.version)
    parked = Parked(sync.token, sync.version)
    decision.group = replace(group, syncing=group.syncing.set(member_id, parked))
    _note_synced(decision, member_id)


def assign(decision: ClassicDecision, sync: Sync) -> None:
    """C41: write the leader's assignment to the log, then answer all parked syncs."""
    park(decision, sync)
    group = decision.group
    given = {entry.member_id: entry.assignment for entry in sync.request.assignments}
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
    decision.write_group(assignments)
    waiting = sorted(group.syncing.items())
    decision.group = replace(group, syncing=Map())
    decision.enter(GroupState.STABLE)
    for member_id, parked in waiting:
        response = _assignment(decision.group, assignments[member_id])
        decision.reply(parked.token, response, parked.version)
    for member in decision.group.sorted_members():
        rebalance.restart_session(decision, member)  # C43
    _report(decision, assignments)


def tell_assignment(decision: ClassicDecision, sync: Sync) -> None:
    """C41: answer with the assignment, which is known already."""
    member_id = sync.request.member_id
    _note_synced(decision, member_id)
    stored = STORED.of(decision.log)[decision.group.group_id].assignment_of(member_id)
    decision.reply(sync.token, _assignment(decision.group, stored), sync.version)


def _note_synced(decision: ClassicDecision, member_id: str) -> None:
    """C42: note the member's sync; the last one ends the wait."""
    group = decision.group
    if member_id not in group.unsynced:
        return
    decision.group = replace(group, unsynced=group.unsynced.delete(member_id))
    if not decision.group.unsynced:
        decision.cancel(SyncExpired(group.group_id))


def _assignment(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=assignment,
    )


def _report(decision: ClassicDecision, assignments: dict[str, bytes]) -> None:
    if decision.group.protocol_type != PROTOCOL_TYPE:
        return
    read = ((member_id, _partitions(data)) for member_id, data in sorted(assignments.items()))
    given = ((name, partitions) for name, partitions in read if partitions is not None)
    decision.say_assigned(decision.group.generation, given)


def _partitions(data: bytes) -> tuple[TopicPartition, ...] | None:
    try:
        return tuple(sorted(decode_assignment(data)[0]))
    except RemoteProtocolError:
        return None


# --------------------------------------------------------------------------------------- Heartbeat


def heartbeat_error(decision: ClassicDecision, heartbeat: Heartbeat) -> ErrorCode | None:
    """C18, C44: return the error for a heartbeat with a wrong member or generation."""
    request = heartbeat.request
    return generation_error(
        decision.group, request.member_id, request.group_instance_id, request.generation_id
    )


def accept(decision: ClassicDecision, heartbeat: Heartbeat) -> None:
    """C44: accept a heartbeat, even before the assignment is ready."""
    rebalance.restart_session(decision, decision.group.members[heartbeat.request.member_id])
    decision.reply(heartbeat.token, _ALIVE, heartbeat.version)


def call_back(decision: ClassicDecision, heartbeat: Heartbeat) -> None:
    """C44: note that the member is alive, and ask it to rejoin."""
    rebalance.restart_session(decision, decision.group.members[heartbeat.request.member_id])
    response = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    decision.reply(heartbeat.token, response, heartbeat.version)


# ------------------------------------------------------------------------------------ OffsetCommit


def create_and_store(decision: ClassicDecision, commit: services.Commit) -> None:
    """C50: store positions, which creates the group."""
    services.store(decision, commit)
    if decision.records:
        decision.enter(GroupState.EMPTY)


def store_and_stay(decision: ClassicDecision, commit: services.Commit) -> None:
    """C51: store positions, and restart the member's session."""
    rebalance.restart_session(decision, decision.group.members[commit.request.member_id])
    services.store(decision, commit)
