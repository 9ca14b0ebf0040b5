"""Classic groups as a kind of group: their requests, records and look-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

from kohort.errors import ErrorCode
from kohort.group.coordinator.classic.fold import STORED, apply
from kohort.group.coordinator.classic.group import (
    LIVE,
    ClassicDecision,
    ClassicGroup,
    GroupState,
    loaded_group,
)
from kohort.group.coordinator.classic.table import CLASSIC_GROUP
from kohort.group.coordinator.decision import LiveKind
from kohort.group.coordinator.events import LoadFinished, RequestArrived
from kohort.group.coordinator.kind import Answer, Api, Fold, Hear
from kohort.group.coordinator.records import GroupLog
from kohort.group.coordinator.refusals import needs_group_id, refused_with
from kohort.group.coordinator.session import SessionState, ShardDecision
from kohort.wire.codec.schema import Message
from kohort.wire.messages.group_records import GroupMetadataKey
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

S = TypeVar("S", bound=SessionState)

_PROTOCOL_NAMED_SINCE = 5


def _check_sync(arrived: RequestArrived[Message]) -> ErrorCode | None:
    """C40 (KIP-559): check the type and assignor, which a sync names from version 5 on."""
    request = cast("SyncGroupRequest", arrived.request)
    unnamed = request.protocol_type is None or request.protocol_name is None
    if unnamed and arrived.version >= _PROTOCOL_NAMED_SINCE:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return needs_group_id(arrived)


def find(session: SessionState, log: GroupLog, group_id: str) -> ClassicGroup:
    """Return the live group, the empty one in the log, or a missing one.

    An id that only has positions is an empty group, too (C50).
    """
    group = LIVE.of(session).get(group_id)
    if group is not None:
        return group
    stored = STORED.of(log).get(group_id)
    if stored is not None:
        return loaded_group(group_id, stored)
    exists = log.has_offsets(group_id)
    return ClassicGroup(group_id=group_id, state=GroupState.EMPTY if exists else GroupState.DEAD)


def keep(session: S, group: ClassicGroup) -> S:
    """Return the session with the group, or without it if its whole state is in the log."""
    in_log = group.state is GroupState.DEAD or (
        group.state is GroupState.EMPTY and not group.pending
    )
    return LIVE.with_entry(session, group.group_id, None if in_log else group)


def run(shard: ShardDecision, group_id: str, trigger: type[object], event: object) -> None:
    """Run an event on one group, and collect its effects."""
    before = find(shard.session, shard.log, group_id)
    session = shard.session
    decision = ClassicDecision(
        group_id,
        shard.config,
        shard.log,
        shard.now,
        shard.wall_ms,
        session.deadlines,
        session.topics,
        group=before,
    )
    CLASSIC_GROUP.run(decision, trigger, event)
    if decision.group is not before:
        shard.session = keep(shard.session, decision.group)
    decision.hand_over(shard)


class ClassicKind(LiveKind[ClassicGroup]):
    """Groups of the classic protocol (KIP-62, 134, 345, 389, 394)."""

    name = "classic"
    apis: Mapping[type[Message], Api] = {
        JoinGroupRequest: Api(needs_group_id, refused_with(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)),
        SyncGroupRequest: Api(_check_sync, refused_with(ErrorCode.UNKNOWN_MEMBER_ID)),
        HeartbeatRequest: Api(needs_group_id, refused_with(ErrorCode.UNKNOWN_MEMBER_ID)),
        LeaveGroupRequest: Api(needs_group_id, refused_with(ErrorCode.UNKNOWN_MEMBER_ID)),
    }
    answers: Mapping[type[Message], Answer] = {}
    hears: Mapping[type[object], Hear] = {}
    folds: Mapping[type[Message], Fold] = {GroupMetadataKey: apply}

    def __init__(self) -> None:
        super().__init__(LIVE, STORED, run, CLASSIC_GROUP.total)

    def group(self, session: SessionState, log: GroupLog, group_id: str) -> ClassicGroup:
        """Return a group, which may be `DEAD`."""
        return find(session, log, group_id)

    def load(self, shard: ShardDecision, group_id: str, event: LoadFinished) -> None:
        """C72: restore a group that has members."""
        stored = STORED.of(shard.log).get(group_id)
        if stored is not None and stored.members:
            group = find(shard.session, shard.log, group_id)
            shard.session = LIVE.with_entry(shard.session, group_id, group)
            run(shard, group_id, LoadFinished, event)
