"""DeleteRecords: let a partition begin at a later offset (KIP-107)."""

from __future__ import annotations

from kohort.wire.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    message,
    struct,
)


@struct
class DeleteRecordsPartition(Struct):
    """A partition, and the first offset that is to stay; -1 is the end."""

    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic(Struct):
    """The partitions of one topic."""

    name: String
    partitions: tuple[DeleteRecordsPartition, ...]


@message(api_key=21, versions=(0, 2), flexible_since=2)
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    """Delete the records before an offset."""

    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult(Struct):
    """Where a partition begins now."""

    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@struct
class DeleteRecordsTopicResult(Struct):
    """What became of the partitions of one topic."""

    name: String
    partitions: tuple[DeleteRecordsPartitionResult, ...]


@message(api_key=21, versions=(0, 2), flexible_since=2)
class DeleteRecordsResponse(Message):
    """Where each partition begins now."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...]
