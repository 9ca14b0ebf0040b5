"""Stored positions, and the records that hold them (C70)."""

from __future__ import annotations

import uuid
from typing import cast

from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import dataclass, replace
from kohort.wire.messages.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """A position in the log.

    Attributes:
        offset: Offset of the next record to read.
        leader_epoch: Leader epoch of the last record read, -1 when unknown.
        metadata: Text beside it.
        commit_timestamp: When it was stored, in milliseconds since 1970.
        expire_timestamp: When it ends by the wish of an old client (KIP-211), -1 for none.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1


def stored_offset(value: OffsetCommitValue) -> StoredOffset:
    """Read a record's value."""
    return StoredOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
    )


def offset_record(
    group_id: str,
    partition: TopicPartition,
    position: OffsetAndMetadata,
    wall_ms: int,
    expire_timestamp: int = -1,
) -> GroupRecord:
    """Return the record that stores a position."""
    return GroupRecord(
        OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition),
        OffsetCommitValue(
            offset=position.offset,
            leader_epoch=position.leader_epoch,
            metadata=position.metadata,
            commit_timestamp=wall_ms,
            expire_timestamp=expire_timestamp,
        ),
    )


def with_topic_id(record: GroupRecord, topic_id: uuid.UUID) -> GroupRecord:
    """Say which topic of this name is meant, as Kafka does since 4.1 where a broker knows it."""
    value = cast("OffsetCommitValue", record.value)
    return GroupRecord(record.key, replace(value, topic_id=topic_id))


def offset_tombstone(group_id: str, partition: TopicPartition) -> GroupRecord:
    """Return the record that forgets a position."""
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return GroupRecord(key, None)
