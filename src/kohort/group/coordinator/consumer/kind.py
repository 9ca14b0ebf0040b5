"""Consumer groups as a kind of group: requests, records, deadlines; and descriptions (K38)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeAlias, TypeVar, cast

from kohort.errors import ErrorCode
from kohort.group.coordinator import services
from kohort.group.coordinator.consumer import client_assignors, configs, heartbeat, membership
from kohort.group.coordinator.consumer.decision import ConsumerDecision, Passage
from kohort.group.coordinator.consumer.heartbeat import attempt, failed, job_done
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member, MemberState
from kohort.group.coordinator.consumer.state.log_records import GROUPS, KEYS, read
from kohort.group.coordinator.consumer.state.session import SESSION, ConsumerSession
from kohort.group.coordinator.consumer.validate import unknown_group
from kohort.group.coordinator.events import (
    ConsumerAssignmentExpired,
    ConsumerJoinExpired,
    ConsumerRebalanceExpired,
    ConsumerSessionExpired,
    ConsumerSyncExpired,
    JobDone,
    LoadFinished,
    RequestArrived,
    RetentionCheckDue,
    Unload,
)
from kohort.group.coordinator.kind import Answer, Api, Fold, Hear, Serve
from kohort.group.coordinator.records import GroupLog
from kohort.group.coordinator.refusals import (
    ALL_OPERATIONS,
    consumer_describe_failed,
    group_id_of,
    refused_with,
)
from kohort.group.coordinator.session import SessionState, ShardDecision
from kohort.group.coordinator.topics import TopicsImage
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupPrepareAssignmentRequest,
)
from kohort.wire.messages.configs import IncrementalAlterConfigsRequest
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedTopicPartitions,
)
from kohort.wire.messages.group_config_records import GroupConfigKey
from kohort.wire.messages.groups import DeleteGroupsRequest
from kohort.wire.messages.membership import LeaveGroupRequest
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest

E = TypeVar("E")
M = TypeVar("M", bound=Message)

Work: TypeAlias = Callable[[ConsumerDecision], ConsumerDecision]

# The types of members in a description.
_CLASSIC, _CONSUMER = 0, 1


# -------------------------------------------------------------------------------------- one group


def run(shard: ShardDecision, group_id: str, passage: Passage, work: Work) -> None:
    """Run a function on one group, and collect its effects."""
    before = GROUPS.of(shard.log).get(group_id)
    other = None if before else passage.other(shard, group_id)
    session = SESSION.of(shard.session)
    decision = work(
        ConsumerDecision(
            group_id,
            configs.config_of(shard, group_id),
            shard.log,
            shard.now,
            shard.wall_ms,
            shard.session.deadlines,
            shard.session.topics,
            group=before,
            session=session,
            passage=passage,
            other=other,
        )
    )
    if decision.group is not before:
        decision.say_changed(before, other)
    known = decision.session
    if decision.group is None and group_id in known.seen:
        known = forgotten(shard, known, group_id)
    if known is not session:
        shard.session = SESSION.put(shard.session, known)
    if decision.other is not other:
        passage.keep(shard, group_id, decision.other)
    decision.hand_over(shard)


def forgotten(shard: ShardDecision, session: ConsumerSession, group_id: str) -> ConsumerSession:
    """Forget a deleted group; requests that wait for its target get UNKNOWN_MEMBER_ID."""
    run = session.targets.get(group_id)
    if run is not None and run.waiting is not None:
        arrived = run.waiting.arrived
        shard.reply(arrived, failed(arrived, ErrorCode.UNKNOWN_MEMBER_ID))
    return session.without(group_id)


def tried(passage: Passage, work: Callable[[ConsumerDecision, RequestArrived[M]], None]) -> Serve:
    """Return the function that answers a member's request and handles `Refused`."""

    def serve(shard: ShardDecision, group_id: str, event: object) -> None:
        arrived = cast("RequestArrived[M]", event)
        run(shard, group_id, passage, lambda decision: attempt(decision, arrived, work))

    return serve


def _done(passage: Passage, work: Callable[[ConsumerDecision, E], None]) -> Serve:
    """Return the function that runs a request or a deadline on a group."""

    def serve(shard: ShardDecision, group_id: str, event: object) -> None:
        def worked(decision: ConsumerDecision) -> ConsumerDecision:
            work(decision, cast("E", event))
            return decision

        run(shard, group_id, passage, worked)

    return serve


# ------------------------------------------------------------------------------ requests and events


def _commit(decision: ConsumerDecision, arrived: services.Commit) -> None:
    """K35, K36: store the positions of a member, or of any sender in a group without members."""
    services.answer(decision, arrived, services.commit_error, services.store)


def _delete(decision: ConsumerDecision, arrived: services.Delete) -> None:
    """K37: delete a group and its positions if it has no members."""
    services.answer(decision, arrived, services.deletion_error, services.delete)


def _delete_offsets(decision: ConsumerDecision, arrived: services.OffsetDelete) -> None:
    """K37: delete positions, except in topics that a member subscribes to."""
    services.answer(decision, arrived, services.offset_deletion_error, services.delete_offsets)


def _start_sessions(decision: ConsumerDecision, _loaded: LoadFinished) -> None:
    """K30: after a load, start each member's session and rebalance timeouts now."""
    for _, member in sorted(decision.existing.members.items()):
        decision.start_session(member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            decision.start_rebalance(member)


def _anything(_arrived: RequestArrived[Message]) -> ErrorCode | None:
    """Accept the request: its form is checked later, with the group (K5)."""
    return None


def _not_found(arrived: RequestArrived[Message]) -> Message:
    unknown = unknown_group(group_id_of(arrived))
    return failed(arrived, unknown.code, unknown.message)


# ---------------------------------------------------------------------------- ConsumerGroupDescribe


def _description(
    group: ConsumerGroup, topics: TopicsImage, default_assignor: str
) -> DescribedConsumerGroup:
    """Return a group with its members, sorted by id."""
    return DescribedConsumerGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=_described_assignor(group, default_assignor),
        members=tuple(
            _described_member(group, member, topics) for _, member in sorted(group.members.items())
        ),
    )


def _described_assignor(group: ConsumerGroup, default: str) -> str:
    """Return the assignor that computed the target, a member's (K61) or the coordinator's."""
    word = next(iter(group.words.values()), None)
    return group.preferred_assignor(default) if word is None else word.assignor


def _described_member(
    group: ConsumerGroup, member: Member, topics: TopicsImage
) -> DescribedConsumerMember:
    """Describe a member, which still owns the partitions it has to give up (KAFKA-20431)."""
    has = {
        topic_id: [*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ())]
        for topic_id in {*member.assigned, *member.revoking}
    }
    return DescribedConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.regex,
        assignment=_described_assignment(has, topics),
        target_assignment=_described_assignment(group.target_of(member.member_id), topics),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _described_assignment(
    partitions: Mapping[uuid.UUID, Collection[int]], topics: TopicsImage
) -> DescribedAssignment:
    """Return partitions with their topic names, except those of deleted topics."""
    return DescribedAssignment(
        topic_partitions=tuple(
            DescribedTopicPartitions(
                topic_id=topic_id,
                topic_name=topics.names[topic_id],
                partitions=tuple(sorted(partitions[topic_id])),
            )
            for topic_id in sorted(partitions)
            if topic_id in topics.names
        )
    )


def _describe(shard: ShardDecision, arrived: RequestArrived[Message], passage: Passage) -> None:
    """K38: describe the groups of this protocol; any other is reported as not found."""
    request = cast("ConsumerGroupDescribeRequest", arrived.request)
    described = [_described_group(shard, group_id, passage) for group_id in request.group_ids]
    if request.include_authorized_operations:
        described = [
            group if group.error_code else replace(group, authorized_operations=ALL_OPERATIONS)
            for group in described
        ]
    shard.reply(arrived, ConsumerGroupDescribeResponse(groups=tuple(described)))


def _described_group(
    shard: ShardDecision, group_id: str, passage: Passage
) -> DescribedConsumerGroup:
    if not group_id:
        return consumer_describe_failed(group_id, ErrorCode.INVALID_GROUP_ID)
    group = GROUPS.of(shard.log).get(group_id)
    if group is None:
        missing = passage.other(shard, group_id).deletion_error() is ErrorCode.GROUP_ID_NOT_FOUND
        message = f"Group {group_id} {'not found' if missing else 'is not a consumer group'}."
        return consumer_describe_failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    return _description(group, shard.session.topics, shard.config.group_consumer_assignors[0])


# ----------------------------------------------------------------------------------------- the kind


class ConsumerKind:
    """Groups of the consumer protocol (KIP-848).

    Args:
        passage: The conversion to another kind of group.
    """

    name = "consumer"
    apis: Mapping[type[Message], Api] = {
        ConsumerGroupHeartbeatRequest: Api(_anything, refused_with(ErrorCode.GROUP_ID_NOT_FOUND)),
        ConsumerGroupPrepareAssignmentRequest: Api(_anything, _not_found),
        ConsumerGroupInstallAssignmentRequest: Api(_anything, _not_found),
    }
    folds: Mapping[type[Message], Fold] = {
        **dict.fromkeys(KEYS, read),
        GroupConfigKey: configs.read,
    }

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self.serves: Mapping[type[object], Serve] = {
            ConsumerGroupHeartbeatRequest: tried(passage, heartbeat.answer),
            ConsumerGroupPrepareAssignmentRequest: tried(passage, client_assignors.prepare),
            ConsumerGroupInstallAssignmentRequest: tried(passage, client_assignors.install),
            LeaveGroupRequest: _done(passage, membership.leave_as_told),
            OffsetCommitRequest: _done(passage, _commit),
            OffsetDeleteRequest: _done(passage, _delete_offsets),
            DeleteGroupsRequest: _done(passage, _delete),
            RetentionCheckDue: _done(passage, services.expire),
            ConsumerSessionExpired: _done(passage, membership.expire),
            ConsumerRebalanceExpired: _done(passage, membership.expire),
            ConsumerJoinExpired: _done(passage, membership.expire),
            ConsumerSyncExpired: _done(passage, membership.expire),
            ConsumerAssignmentExpired: _done(passage, client_assignors.expire),
        }
        self.answers: Mapping[type[Message], Answer] = {
            ConsumerGroupDescribeRequest: partial(_describe, passage=passage),
            IncrementalAlterConfigsRequest: configs.alter,
        }
        self.hears: Mapping[type[object], Hear] = {JobDone: self._finish_job}

    def _finish_job(self, shard: ShardDecision, event: object) -> None:
        """Use the result of a job."""
        done = cast("JobDone", event)
        shard.wall_ms = done.wall_ms
        run(shard, done.group_id, self._passage, lambda decision: job_done(decision, done))

    def lives(self, _session: SessionState, _group_id: str) -> bool:
        """Return False: a consumer group has no state outside the log."""
        return False

    def has(self, _session: SessionState, log: GroupLog, group_id: str) -> bool:
        """Return whether there is such a group."""
        return group_id in GROUPS.of(log)

    def ids(self, _session: SessionState, log: GroupLog) -> Collection[str]:
        """Return the ids of all groups."""
        return GROUPS.of(log).keys()

    def group(self, _session: SessionState, log: GroupLog, group_id: str) -> ConsumerGroup:
        """Return a group, or an empty value for a missing one."""
        return GROUPS.of(log).get(group_id) or ConsumerGroup(group_id=group_id)

    def load(self, shard: ShardDecision, group_id: str, event: LoadFinished) -> None:
        """K30: start the members' timeouts."""
        _done(self._passage, _start_sessions)(shard, group_id, event)

    def unload(self, shard: ShardDecision, _event: Unload) -> None:
        """C73: refuse requests that wait for a job: another broker is the coordinator now."""
        session = SESSION.of(shard.session)
        waiting: list[RequestArrived[Message]] = []
        waiting += [
            run.waiting.arrived for _, run in sorted(session.targets.items()) if run.waiting
        ]
        waiting += [arrived for _, arrived in sorted(session.installing.items())]
        for arrived in waiting:
            shard.reply(arrived, failed(arrived, ErrorCode.NOT_COORDINATOR))
