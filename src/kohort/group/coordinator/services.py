"""The services that all kinds of group share: store, delete and expire positions, delete groups.

The group decides whether they are allowed (`kind.Group`). Kinds with a table use the functions as
rows; `answer` combines two of them for a kind without a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from kohort.errors import ErrorCode
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.decision import GroupDecision
from kohort.group.coordinator.events import RequestArrived, RetentionCheckDue
from kohort.group.coordinator.records import (
    StoredOffset,
    offset_record,
    offset_tombstone,
)
from kohort.group.events import GroupDeleted, OffsetsCommitted
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kohort.wire.messages.membership import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kohort.wire.messages.txn_requests import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

R = TypeVar("R", bound=Message)

Commit: TypeAlias = RequestArrived[OffsetCommitRequest]
Delete: TypeAlias = RequestArrived[DeleteGroupsRequest]
OffsetDelete: TypeAlias = RequestArrived[OffsetDeleteRequest]
Leave: TypeAlias = RequestArrived[LeaveGroupRequest]

_SEVERAL_SINCE = 3


def answer(
    decision: GroupDecision,
    arrived: RequestArrived[R],
    why: Callable[[GroupDecision, RequestArrived[R]], ErrorCode | None],
    do: Callable[[GroupDecision, RequestArrived[R]], None],
) -> None:
    """Refuse a request, or serve it."""
    decision.why = why(decision, arrived)
    if decision.why is None:
        do(decision, arrived)
    else:
        decision.refuse(arrived)


# ------------------------------------------------------------------------------------ OffsetCommit


def commit_error(decision: GroupDecision, commit: Commit) -> ErrorCode | None:
    """Return the error for a commit by a non-member, or one that may have lost partitions."""
    return decision.existing.commit_error(commit, decision.topics)


def store(decision: GroupDecision, commit: Commit) -> None:
    """C52: write positions to the log, except those with too much metadata."""
    request = commit.request
    stored: list[tuple[TopicPartition, OffsetAndMetadata]] = []
    topics: list[OffsetCommitResponseTopic] = []
    kept_for_ms = request.retention_time_ms
    expires = decision.wall_ms + kept_for_ms if kept_for_ms >= 0 else -1
    most = decision.config.offset_metadata_max_bytes
    for topic in request.topics:
        answers: list[OffsetCommitResponsePartition] = []
        for entry in topic.partitions:
            error = _metadata_error(entry, most)
            answers.append(
                OffsetCommitResponsePartition(
                    partition_index=entry.partition_index, error_code=error
                )
            )
            if error is ErrorCode.NONE:
                partition = TopicPartition(topic.name, entry.partition_index)
                position = _position(entry)
                stored.append((partition, position))
                decision.records.append(
                    offset_record(
                        request.group_id,
                        partition,
                        position,
                        decision.wall_ms,
                        expires,
                        topic.topic_id,
                    )
                )
        topics.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=tuple(answers)
            )
        )
    decision.reply(commit.token, OffsetCommitResponse(topics=tuple(topics)), commit.version)
    if stored:
        _say_committed(decision, request, stored)


Entry: TypeAlias = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


def _metadata_error(entry: Entry, most: int) -> ErrorCode:
    """C52: check the metadata's length in characters of a Java string, as Kafka does."""
    metadata = entry.committed_metadata or ""
    if len(metadata.encode("utf-16-le", "surrogatepass")) > 2 * most:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _position(entry: Entry) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        entry.committed_offset, entry.committed_metadata or "", entry.committed_leader_epoch
    )


def _say_committed(
    decision: GroupDecision,
    request: OffsetCommitRequest,
    stored: list[tuple[TopicPartition, OffsetAndMetadata]],
) -> None:
    decision.observed.append(
        OffsetsCommitted(
            group=request.group_id,
            now=decision.now,
            member=request.member_id,
            generation=request.generation_id_or_member_epoch,
            offsets=tuple(stored),
        )
    )


# --------------------------------------------------------------------------------- TxnOffsetCommit


def pending_commit(
    request: TxnOffsetCommitRequest, config: CoordinatorConfig, wall_ms: int
) -> tuple[list[GroupRecord], TxnOffsetCommitResponse]:
    """Return the records of positions in a transaction, and the answer (C52, C53)."""
    records, topics = [], []
    for topic in request.topics:
        answers = []
        for entry in topic.partitions:
            error = _metadata_error(entry, config.offset_metadata_max_bytes)
            number = entry.partition_index
            answers.append(
                TxnOffsetCommitResponsePartition(partition_index=number, error_code=error)
            )
            if error is ErrorCode.NONE:
                partition = TopicPartition(topic.name, number)
                record = offset_record(request.group_id, partition, _position(entry), wall_ms)
                by, epoch = request.producer_id, request.producer_epoch
                records.append(replace(record, producer_id=by, producer_epoch=epoch))
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=tuple(answers)))
    return records, TxnOffsetCommitResponse(topics=tuple(topics))


# ------------------------------------------------------------------------------------ DeleteGroups


def deletion_error(decision: GroupDecision, _deletion: Delete) -> ErrorCode | None:
    """Return the error for deleting a group that is in use or does not exist (KIP-229)."""
    return decision.existing.deletion_error()


def delete(decision: GroupDecision, deletion: Delete) -> None:
    """Delete the positions and the group; its id is then free for any protocol.

    The request names only this group: `dispatch` merges the answers for several.
    """
    group_id = decision.existing.group_id
    decision.records += [
        offset_tombstone(group_id, partition)
        for partition in decision.log.known_offsets_of(group_id)
    ]
    decision.write(decision.existing.tombstones())
    _end(decision, group_id)
    result = DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE)
    decision.reply(deletion.token, DeleteGroupsResponse(results=(result,)), deletion.version)


def _end(decision: GroupDecision, group_id: str) -> None:
    decision.ended()
    decision.observed.append(GroupDeleted(group=group_id, now=decision.now))


# ------------------------------------------------------------------------------------ OffsetDelete


def offset_deletion_error(decision: GroupDecision, _deletion: OffsetDelete) -> ErrorCode | None:
    """Return the error if no position can be deleted: unknown group or subscriptions."""
    return decision.existing.offset_deletion_error()


def delete_offsets(decision: GroupDecision, deletion: OffsetDelete) -> None:
    """Delete positions in topics that no member subscribes to (KIP-496).

    A position that was never stored is not an error.
    """
    group = decision.existing
    stored = decision.log.known_offsets_of(group.group_id)
    topics = []
    for topic in deletion.request.topics:
        is_read = group.is_subscribed_to(topic.name)
        topics.append(_deleted(topic, is_read))
        if not is_read:
            numbers = dict.fromkeys(entry.partition_index for entry in topic.partitions)
            partitions = (TopicPartition(topic.name, number) for number in numbers)
            decision.records += [
                offset_tombstone(group.group_id, each) for each in partitions if each in stored
            ]
    response = OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=tuple(topics))
    decision.reply(deletion.token, response, deletion.version)


def _deleted(topic: OffsetDeleteRequestTopic, is_read: bool) -> OffsetDeleteResponseTopic:
    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=tuple(
            OffsetDeleteResponsePartition(partition_index=entry.partition_index, error_code=code)
            for entry in topic.partitions
        ),
    )


# --------------------------------------------------------------------------------------- retention


def expire(decision: GroupDecision, _due: RetentionCheckDue) -> None:
    """C60: delete expired positions of topics without readers, and the group with the last one.

    Retention counts from when the last member left; with members, from each commit.
    """
    group, log = decision.existing, decision.log
    if not group.may_expire:
        return
    since_ms, kept = group.unused_since(log), group.group_id in log.pending
    pending = log.pending_of(group.group_id)
    for partition, stored in sorted(log.offsets_of(group.group_id).items()):
        if partition in pending:  # C54: the open transaction decides this position.
            continue
        if not group.is_subscribed_to(partition.topic) and _is_expired(decision, stored, since_ms):
            decision.records.append(offset_tombstone(group.group_id, partition))
        else:
            kept = True
    if not kept and group.deletion_error() is None:
        if group.is_in(log):
            decision.write(group.tombstones())
        _end(decision, group.group_id)


def _is_expired(decision: GroupDecision, stored: StoredOffset, since_ms: int | None) -> bool:
    """Return whether a position has expired; old clients may have set their own expiry."""
    if stored.expire_timestamp >= 0:
        return decision.wall_ms >= stored.expire_timestamp
    counted_from_ms = stored.commit_timestamp if since_ms is None else since_ms
    return decision.wall_ms - counted_from_ms >= decision.config.offsets_retention_ms


# -------------------------------------------------------------------------------------- LeaveGroup


def leavers(leaving: Leave) -> tuple[MemberIdentity, ...]:
    """Return the leaving members; before version 3 there is only one."""
    if leaving.version >= _SEVERAL_SINCE:
        return leaving.request.members
    return (MemberIdentity(member_id=leaving.request.member_id),)


def answer_leave(
    decision: GroupDecision, leave: Leave, results: Sequence[tuple[MemberIdentity, ErrorCode]]
) -> None:
    """Report each member's result; before version 3, the only one is the answer's error."""
    if leave.version >= _SEVERAL_SINCE:
        members = tuple(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=error,
            )
            for identity, error in results
        )
        response = LeaveGroupResponse(error_code=ErrorCode.NONE, members=members)
    else:
        response = LeaveGroupResponse(error_code=results[0][1])
    decision.reply(leave.token, response, leave.version)
