"""ListOffsets: the offset for a timestamp, or of either end of a partition."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    message,
    since,
)


class ListOffsetsPartition(Struct, frozen=True, kw_only=True):
    """A partition and the requested timestamp; -1 is the end, -2 the start."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4), IGNORABLE] = -1
    timestamp: Int64


class ListOffsetsTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[ListOffsetsPartition, ...]


@message(api_key=2, versions=(1, 11), flexible_since=6)
class ListOffsetsRequest(Request["ListOffsetsResponse"], frozen=True, kw_only=True):
    """Ask for offsets by timestamp."""

    replica_id: Int32
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: tuple[ListOffsetsTopic, ...]
    timeout_ms: Annotated[Int32, since(10), IGNORABLE] = 0


class ListOffsetsPartitionResponse(Struct, frozen=True, kw_only=True):
    """The offset found, -1 if none."""

    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


class ListOffsetsTopicResponse(Struct, frozen=True, kw_only=True):
    """The offsets of one topic."""

    name: String
    partitions: tuple[ListOffsetsPartitionResponse, ...]


@message(api_key=2, versions=(1, 11), flexible_since=6)
class ListOffsetsResponse(Message, frozen=True, kw_only=True):
    """The offsets found."""

    throttle_time_ms: Annotated[Int32, since(2), IGNORABLE] = 0
    topics: tuple[ListOffsetsTopicResponse, ...]
