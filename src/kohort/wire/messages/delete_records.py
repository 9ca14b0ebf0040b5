"""DeleteRecords: move the start of a partition to a later offset (KIP-107)."""

from __future__ import annotations

from kohort.wire.codec.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    message,
)


class DeleteRecordsPartition(Struct, frozen=True, kw_only=True):
    """A partition, and the first offset to keep; -1 is the end."""

    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[DeleteRecordsPartition, ...]


@message(api_key=21, versions=(0, 2), flexible_since=2)
class DeleteRecordsRequest(Request["DeleteRecordsResponse"], frozen=True, kw_only=True):
    """Delete the records before an offset."""

    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: Int32


class DeleteRecordsPartitionResult(Struct, frozen=True, kw_only=True):
    """The new start of a partition."""

    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


class DeleteRecordsTopicResult(Struct, frozen=True, kw_only=True):
    """The result for the partitions of one topic."""

    name: String
    partitions: tuple[DeleteRecordsPartitionResult, ...]


@message(api_key=21, versions=(0, 2), flexible_since=2)
class DeleteRecordsResponse(Message, frozen=True, kw_only=True):
    """The new start of each partition."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...]
