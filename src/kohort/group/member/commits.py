"""Commits of a member: their identity, and the reaction to errors (L11, L37)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


class CommitIdentity(Struct, frozen=True):
    """The member's identity in a commit."""

    member_id: str
    generation: int


class CommitVerdict(Enum):
    """The client's reaction to an answer."""

    DONE = "stored"
    RETRY = "send it again, after a wait"
    REBALANCE_IN_PROGRESS = "raise RebalanceInProgressError: poll, then commit again"
    STALE_EPOCH = "send it again with the current identity, or raise CommitFailedError (L37)"
    COMMIT_FAILED = "raise CommitFailedError: the partitions belong to another member now"
    RAISE = "raise KafkaError with the code"


_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_FENCED = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
)


def verdict(
    code: int, sent: CommitIdentity, present: CommitIdentity, *, rebalancing: bool
) -> CommitVerdict:
    """Return how to react to an answer (L11, L37).

    Args:
        code: Error code of the answer.
        sent: The identity in the commit.
        present: The member's current identity.
        rebalancing: Whether the member is joining at this moment.
    """
    if code == ErrorCode.NONE:
        return CommitVerdict.DONE
    if code in _RETRIED:
        return CommitVerdict.RETRY
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        return CommitVerdict.REBALANCE_IN_PROGRESS
    if code in _FENCED and sent != present and rebalancing:
        # In flight when the member began to join: it may soon own the partitions again.
        return CommitVerdict.REBALANCE_IN_PROGRESS
    if code == ErrorCode.STALE_MEMBER_EPOCH:
        return CommitVerdict.STALE_EPOCH
    if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
        return CommitVerdict.COMMIT_FAILED
    if code == ErrorCode.FENCED_INSTANCE_ID and sent != present:
        return CommitVerdict.COMMIT_FAILED
    return CommitVerdict.RAISE


def commit_request(
    group_id: str,
    identity: CommitIdentity,
    group_instance_id: str | None,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> OffsetCommitRequest:
    """Return the request that stores positions under a member's identity."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, position in sorted(offsets.items()):
        entry = OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=position.offset,
            committed_leader_epoch=position.leader_epoch,
            committed_metadata=position.metadata,
        )
        topics.setdefault(partition.topic, []).append(entry)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=group_instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(name=name, partitions=tuple(entries))
            for name, entries in topics.items()
        ),
    )
