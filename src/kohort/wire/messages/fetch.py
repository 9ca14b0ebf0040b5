"""Fetch: read record batches from partitions."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Records,
    Request,
    String,
    Struct,
    Tag,
    Uuid,
    message,
    since,
    until,
)


class ReplicaState(Struct, frozen=True, kw_only=True):
    """Identifies a reader that is a broker; consumers leave it out."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct, frozen=True, kw_only=True):
    """A partition to read and where to start."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, since(9), IGNORABLE] = -1
    fetch_offset: Int64
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5), IGNORABLE] = -1
    partition_max_bytes: Int32
    replica_directory_id: Annotated[Uuid, since(17), Tag(0), IGNORABLE] = ZERO_UUID
    high_watermark: Annotated[Int64, since(18), Tag(1), IGNORABLE] = 0x7FFFFFFFFFFFFFFF


class FetchTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic to read."""

    topic: Annotated[String, until(12), IGNORABLE] = ""
    topic_id: Annotated[Uuid, since(13), IGNORABLE] = ZERO_UUID
    partitions: tuple[FetchPartition, ...]


class ForgottenTopic(Struct, frozen=True, kw_only=True):
    """Partitions that leave a fetch session (KIP-227)."""

    topic: Annotated[String, until(12), IGNORABLE] = ""
    topic_id: Annotated[Uuid, since(13), IGNORABLE] = ZERO_UUID
    partitions: tuple[Int32, ...]


@message(api_key=1, versions=(4, 18), flexible_since=12)
class FetchRequest(Request["FetchResponse"], frozen=True, kw_only=True):
    """Read from partitions, waiting for data if there is too little."""

    cluster_id: Annotated[NullableString, since(12), Tag(0), IGNORABLE] = None
    replica_id: Annotated[Int32, until(14)] = -1
    replica_state: Annotated[ReplicaState, since(15), Tag(1)] = ReplicaState()
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, since(7), IGNORABLE] = 0
    session_epoch: Annotated[Int32, since(7), IGNORABLE] = -1
    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], since(7)] = ()
    rack_id: Annotated[String, since(11), IGNORABLE] = ""


class EpochEndOffset(Struct, frozen=True, kw_only=True):
    """Where a leader epoch ended."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct, frozen=True, kw_only=True):
    """The leader of a partition."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct, frozen=True, kw_only=True):
    """Identifies a snapshot of the metadata log; only brokers use it."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct, frozen=True, kw_only=True):
    """A transaction whose records a read-committed reader drops."""

    producer_id: Int64
    first_offset: Int64


class PartitionData(Struct, frozen=True, kw_only=True):
    """The data read from one partition."""

    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5), IGNORABLE] = -1
    diverging_epoch: Annotated[EpochEndOffset, since(12), Tag(0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, since(12), Tag(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, since(12), Tag(2)] = SnapshotId()
    aborted_transactions: tuple[AbortedTransaction, ...] | None
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Records


class FetchableTopicResponse(Struct, frozen=True, kw_only=True):
    """The data read from one topic."""

    topic: Annotated[String, until(12), IGNORABLE] = ""
    topic_id: Annotated[Uuid, since(13), IGNORABLE] = ZERO_UUID
    partitions: tuple[PartitionData, ...]


class NodeEndpoint(Struct, frozen=True, kw_only=True):
    """The address of a leader, so that a client need not ask again (KIP-951)."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None


@message(api_key=1, versions=(4, 18), flexible_since=12)
class FetchResponse(Message, frozen=True, kw_only=True):
    """Record batches of each partition; the first may start before the requested offset."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7), IGNORABLE] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: tuple[FetchableTopicResponse, ...]
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], since(16), Tag(0)] = ()
