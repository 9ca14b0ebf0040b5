"""SyncGroup (C40-C43)."""

from __future__ import annotations

from typing import TypeAlias

from immutables import Map

from kohort.errors import ErrorCode, RemoteProtocolError
from kohort.group.coordinator.classic import rebalance
from kohort.group.coordinator.classic.draft import GroupDraft
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.coordinator.classic.identity import generation_error
from kohort.group.coordinator.events import RequestArrived, SyncExpired
from kohort.group.coordinator.group import Parked
from kohort.group.coordinator.refusals import sync_refused
from kohort.group.events import Assigned
from kohort.group.subscription import PROTOCOL_TYPE, decode_assignment
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.membership import SyncGroupRequest, SyncGroupResponse

Sync: TypeAlias = RequestArrived[SyncGroupRequest]


def is_refused(draft: GroupDraft, sync: Sync) -> bool:
    """C40: whether the sender, its generation or its protocol is not the group's."""
    return _error(draft, sync) is not None


def refuse(draft: GroupDraft, sync: Sync) -> None:
    """C40: also in a group without members, which has none that could ask."""
    _answer_error(draft, sync, _error(draft, sync) or ErrorCode.UNKNOWN_MEMBER_ID)


def _error(draft: GroupDraft, sync: Sync) -> ErrorCode | None:
    group, request = draft.group, sync.request
    error = generation_error(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if error is not None:
        return error
    same_type = request.protocol_type in (None, group.protocol_type)
    same_name = request.protocol_name in (None, group.protocol)
    return None if same_type and same_name else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _answer_error(draft: GroupDraft, sync: Sync, code: ErrorCode) -> None:
    draft.reply(sync.token, sync_refused(code), sync.version)


def send_back(draft: GroupDraft, sync: Sync) -> None:
    """C41: the next rebalance has begun already: join again."""
    _answer_error(draft, sync, ErrorCode.REBALANCE_IN_PROGRESS)


def is_leader(draft: GroupDraft, sync: Sync) -> bool:
    """Whether the leader hands over the assignment."""
    return sync.request.member_id == draft.group.leader


def park(draft: GroupDraft, sync: Sync) -> None:
    """C41: wait for the leader."""
    group, member_id = draft.group, sync.request.member_id
    earlier = group.syncing.get(member_id)
    if earlier is not None:
        refused = sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)
        draft.reply(earlier.token, refused, earlier.version)
    parked = Parked(sync.token, sync.version)
    draft.group = replace(group, syncing=group.syncing.set(member_id, parked))
    _note_synced(draft, member_id)


def assign(draft: GroupDraft, sync: Sync) -> None:
    """C41: write the leader's assignment to the log, then tell everybody who waits for it."""
    park(draft, sync)
    group = draft.group
    given = {entry.member_id: entry.assignment for entry in sync.request.assignments}
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
    draft.write_group(assignments)
    waiting = sorted(group.syncing.items())
    draft.group = replace(group, syncing=Map())
    draft.enter(GroupState.STABLE)
    for member_id, parked in waiting:
        response = _assignment(draft.group, assignments[member_id])
        draft.reply(parked.token, response, parked.version)
    for member in draft.group.sorted_members():
        rebalance.restart_session(draft, member)  # C43
    _report(draft, assignments)


def tell_assignment(draft: GroupDraft, sync: Sync) -> None:
    """C41: the assignment is known already."""
    member_id = sync.request.member_id
    _note_synced(draft, member_id)
    stored = draft.log.groups[draft.group.group_id].assignment_of(member_id)
    draft.reply(sync.token, _assignment(draft.group, stored), sync.version)


def _note_synced(draft: GroupDraft, member_id: str) -> None:
    """C42: when the last one has asked, nobody is waited for any more."""
    group = draft.group
    if member_id not in group.unsynced:
        return
    draft.group = replace(group, unsynced=group.unsynced.delete(member_id))
    if not draft.group.unsynced:
        draft.cancel(SyncExpired(group.group_id))


def _assignment(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=assignment,
    )


def _report(draft: GroupDraft, assignments: dict[str, bytes]) -> None:
    if draft.group.protocol_type != PROTOCOL_TYPE:
        return
    read = ((member_id, _partitions(data)) for member_id, data in sorted(assignments.items()))
    draft.observed.append(
        Assigned(
            group=draft.group.group_id,
            now=draft.now,
            generation=draft.group.generation,
            assignments=tuple((name, parts) for name, parts in read if parts is not None),
        )
    )


def _partitions(data: bytes) -> tuple[TopicPartition, ...] | None:
    try:
        return tuple(sorted(decode_assignment(data)[0]))
    except RemoteProtocolError:
        return None
