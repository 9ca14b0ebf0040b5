"""OffsetForLeaderEpoch: where an epoch of a partition ended (KIP-320)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.schema import (
    IGNORABLE,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    message,
    since,
    struct,
)


@struct
class OffsetForLeaderPartition(Struct):
    """A partition and the epoch asked for."""

    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic(Struct):
    """The partitions of one topic."""

    topic: String
    partitions: tuple[OffsetForLeaderPartition, ...]


@message(api_key=23, versions=(2, 4), flexible_since=4)
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """Ask where leader epochs ended."""

    replica_id: Annotated[Int32, since(3), IGNORABLE] = -2
    topics: tuple[OffsetForLeaderTopic, ...]


@struct
class EpochEndOffset(Struct):
    """Where a leader epoch ended."""

    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult(Struct):
    """The answers for one topic."""

    topic: String
    partitions: tuple[EpochEndOffset, ...]


@message(api_key=23, versions=(2, 4), flexible_since=4)
class OffsetForLeaderEpochResponse(Message):
    """Where they ended."""

    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetForLeaderTopicResult, ...]
