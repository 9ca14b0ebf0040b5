"""Turn a commit into records; who may commit is the business of the group's protocol."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.coordinator.offsets.fold import offset_record, with_topic_id
from kohort.group.events import OffsetsCommitted
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import dataclass
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


@dataclass(frozen=True, slots=True)
class StoreResult:
    """A commit as records.

    Attributes:
        records: The records to append.
        response: The answer once they are.
        observed: That there are new positions, if any were taken.
    """

    records: tuple[GroupRecord, ...]
    response: OffsetCommitResponse
    observed: tuple[OffsetsCommitted, ...]


def store(
    request: OffsetCommitRequest, metadata_max_bytes: int, now: int, wall_ms: int
) -> StoreResult:
    """Return what has to be written; a position with too long a text is left out (C52).

    Args:
        request: The commit.
        metadata_max_bytes: `offset.metadata.max.bytes`.
        now: Time of the commit, in milliseconds of the coordinator's clock.
        wall_ms: Time of the commit, in milliseconds since 1970.
    """
    records: list[GroupRecord] = []
    stored: list[tuple[TopicPartition, OffsetAndMetadata]] = []
    topics: list[OffsetCommitResponseTopic] = []
    kept_for_ms = request.retention_time_ms
    expires = wall_ms + kept_for_ms if kept_for_ms >= 0 else -1
    for topic in request.topics:
        answers: list[OffsetCommitResponsePartition] = []
        for entry in topic.partitions:
            error = _error(entry, metadata_max_bytes)
            answers.append(
                OffsetCommitResponsePartition(
                    partition_index=entry.partition_index, error_code=error
                )
            )
            if error is ErrorCode.NONE:
                partition, position = (
                    TopicPartition(topic.name, entry.partition_index),
                    _position(entry),
                )
                stored.append((partition, position))
                record = offset_record(request.group_id, partition, position, wall_ms, expires)
                records.append(with_topic_id(record, topic.topic_id))
        topics.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=tuple(answers)
            )
        )
    committed = OffsetsCommitted(
        group=request.group_id,
        now=now,
        member=request.member_id,
        generation=request.generation_id_or_member_epoch,
        offsets=tuple(stored),
    )
    return StoreResult(
        tuple(records),
        OffsetCommitResponse(topics=tuple(topics)),
        (committed,) if stored else (),
    )


def _error(entry: OffsetCommitRequestPartition, metadata_max_bytes: int) -> ErrorCode:
    metadata = entry.committed_metadata or ""
    if len(metadata.encode(errors="surrogatepass")) > metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _position(entry: OffsetCommitRequestPartition) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        entry.committed_offset, entry.committed_metadata or "", entry.committed_leader_epoch
    )
