"""OffsetForLeaderEpoch: the end of an epoch of a partition (KIP-320)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
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
)


class OffsetForLeaderPartition(Struct, frozen=True, kw_only=True):
    """A partition and the requested epoch."""

    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


class OffsetForLeaderTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    topic: String
    partitions: tuple[OffsetForLeaderPartition, ...]


@message(api_key=23, versions=(2, 4), flexible_since=4)
class OffsetForLeaderEpochRequest(
    Request["OffsetForLeaderEpochResponse"], frozen=True, kw_only=True
):
    """Ask for the ends of leader epochs."""

    replica_id: Annotated[Int32, since(3), IGNORABLE] = -2
    topics: tuple[OffsetForLeaderTopic, ...]


class EpochEndOffset(Struct, frozen=True, kw_only=True):
    """Where a leader epoch ended."""

    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct, frozen=True, kw_only=True):
    """The answers for one topic."""

    topic: String
    partitions: tuple[EpochEndOffset, ...]


@message(api_key=23, versions=(2, 4), flexible_since=4)
class OffsetForLeaderEpochResponse(Message, frozen=True, kw_only=True):
    """The ends of the epochs."""

    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetForLeaderTopicResult, ...]
