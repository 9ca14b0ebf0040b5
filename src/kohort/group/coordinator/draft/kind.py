"""Draft groups as a kind of group: their requests, records and look-up (D16).

A group has the protocol of its first member until it is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kohort.errors import ErrorCode
from kohort.group.coordinator.decision import LiveKind
from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.draft.fold import apply
from kohort.group.coordinator.draft.group import LIVE, STORED, DraftGroup, DraftState, loaded_group
from kohort.group.coordinator.draft.table import DRAFT_GROUP
from kohort.group.coordinator.events import LoadFinished, TopicsChanged
from kohort.group.coordinator.jobs import DraftJobDone
from kohort.group.coordinator.kind import Answer, Api, Fold, Hear
from kohort.group.coordinator.records import GroupLog
from kohort.group.coordinator.refusals import needs_group_id, refused_with
from kohort.group.coordinator.session import SessionState, ShardDecision
from kohort.wire.codec.schema import Message
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.draft_records import DraftGroupKey


def is_draft(session: SessionState, log: GroupLog, group_id: str) -> bool:
    """Return whether a group speaks the draft protocol."""
    return group_id in LIVE.of(session) or group_id in STORED.of(log)


def group_of(session: SessionState, log: GroupLog, group_id: str) -> DraftGroup:
    """Return a group: the live one, the one in the log, or a missing one."""
    live = LIVE.of(session).get(group_id)
    if live is not None:
        return live
    stored = STORED.of(log).get(group_id)
    return loaded_group(group_id, stored) if stored else DraftGroup(group_id=group_id)


def run(shard: ShardDecision, group_id: str, trigger: type[object], event: object) -> None:
    """Run an event on one group, and collect its effects."""
    decision = DraftDecision(
        group_id,
        shard.config,
        shard.log,
        shard.now,
        shard.wall_ms,
        shard.session.deadlines,
        shard.session.topics,
        group=group_of(shard.session, shard.log, group_id),
    )
    DRAFT_GROUP.run(decision, trigger, event)
    live = None if decision.group.state is DraftState.NONE else decision.group
    shard.session = LIVE.with_entry(shard.session, group_id, live)
    decision.hand_over(shard)


def _finish_job(shard: ShardDecision, event: object) -> None:
    """D5: use the assignment of a group."""
    done = cast("DraftJobDone", event)
    if done.job.group_id in LIVE.of(shard.session):
        run(shard, done.job.group_id, DraftJobDone, done)


def _look_at_topics(shard: ShardDecision, event: object) -> None:
    """D14: have every group check whether its topics have changed."""
    for group_id in sorted(LIVE.of(shard.session)):
        run(shard, group_id, TopicsChanged, event)


class DraftKind(LiveKind[DraftGroup]):
    """Groups of the first design of Kafka 0.9's coordinator."""

    name = "draft"
    apis: Mapping[type[Message], Api] = {
        DraftJoinGroupRequest: Api(
            needs_group_id, refused_with(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        ),
        DraftHeartbeatRequest: Api(needs_group_id, refused_with(ErrorCode.UNKNOWN_MEMBER_ID)),
    }
    answers: Mapping[type[Message], Answer] = {}
    hears: Mapping[type[object], Hear] = {
        DraftJobDone: _finish_job,
        TopicsChanged: _look_at_topics,
    }
    folds: Mapping[type[Message], Fold] = {DraftGroupKey: apply}

    def __init__(self) -> None:
        super().__init__(LIVE, STORED, run, DRAFT_GROUP.total)

    def group(self, session: SessionState, log: GroupLog, group_id: str) -> DraftGroup:
        """Return a group, which may be in state `NONE`."""
        return group_of(session, log, group_id)

    def load(self, shard: ShardDecision, group_id: str, event: LoadFinished) -> None:
        """D15: restore a group that has consumers."""
        stored = STORED.of(shard.log).get(group_id)
        if stored is not None and stored.consumers:
            run(shard, group_id, LoadFinished, event)
