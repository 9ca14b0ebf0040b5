"""The requests of a transactional producer: add partitions, commit offsets, end (KIP-98)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    message,
    since,
    until,
)


class AddPartitionsToTxnTopic(Struct, frozen=True, kw_only=True):
    """Partitions of one topic that join the transaction."""

    name: String
    partitions: tuple[Int32, ...]


class AddPartitionsToTxnTransaction(Struct, frozen=True, kw_only=True):
    """Partitions to add to one transaction, or only to verify."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False
    topics: tuple[AddPartitionsToTxnTopic, ...]


@message(api_key=24, versions=(0, 5), flexible_since=3)
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"], frozen=True, kw_only=True):
    """Add partitions to a transaction; since version 4 only for brokers (KIP-890)."""

    transactions: Annotated[tuple[AddPartitionsToTxnTransaction, ...], since(4)] = ()
    v3_and_below_transactional_id: Annotated[String, until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, until(3)] = 0
    v3_and_below_topics: Annotated[tuple[AddPartitionsToTxnTopic, ...], until(3)] = ()


class AddPartitionsToTxnPartitionResult(Struct, frozen=True, kw_only=True):
    """The result for one partition."""

    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsToTxnTopicResult(Struct, frozen=True, kw_only=True):
    """The result for one topic's partitions."""

    name: String
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...]


class AddPartitionsToTxnResult(Struct, frozen=True, kw_only=True):
    """The result for the partitions of one transaction."""

    transactional_id: String
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...]


@message(api_key=24, versions=(0, 5), flexible_since=3)
class AddPartitionsToTxnResponse(Message, frozen=True, kw_only=True):
    """The result for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4), IGNORABLE] = 0
    results_by_transaction: Annotated[tuple[AddPartitionsToTxnResult, ...], since(4)] = ()
    results_by_topic_v3_and_below: Annotated[
        tuple[AddPartitionsToTxnTopicResult, ...], until(3)
    ] = ()


@message(api_key=25, versions=(0, 4), flexible_since=3)
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], frozen=True, kw_only=True):
    """Add the offsets of a group to the transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@message(api_key=25, versions=(0, 4), flexible_since=3)
class AddOffsetsToTxnResponse(Message, frozen=True, kw_only=True):
    """Whether they were added."""

    throttle_time_ms: Int32 = 0
    error_code: Int16


@message(api_key=26, versions=(0, 5), flexible_since=3)
class EndTxnRequest(Request["EndTxnResponse"], frozen=True, kw_only=True):
    """Commit or abort the transaction; version 5 also starts the next epoch (KIP-890)."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@message(api_key=26, versions=(0, 5), flexible_since=3)
class EndTxnResponse(Message, frozen=True, kw_only=True):
    """Whether it ended, and the producer's new id and epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Annotated[Int64, since(5), IGNORABLE] = -1
    producer_epoch: Annotated[Int16, since(5), IGNORABLE] = -1


class TxnOffsetCommitRequestPartition(Struct, frozen=True, kw_only=True):
    """The offset of one partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(2), IGNORABLE] = -1
    committed_metadata: NullableString


class TxnOffsetCommitRequestTopic(Struct, frozen=True, kw_only=True):
    """The offsets of one topic."""

    name: String
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


@message(api_key=28, versions=(0, 5), flexible_since=3)
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"], frozen=True, kw_only=True):
    """Commit offsets that take effect when the transaction commits (KIP-447 for the member)."""

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, since(3)] = -1
    member_id: Annotated[String, since(3)] = ""
    group_instance_id: Annotated[NullableString, since(3)] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...]


class TxnOffsetCommitResponsePartition(Struct, frozen=True, kw_only=True):
    """The result for one offset."""

    partition_index: Int32
    error_code: Int16


class TxnOffsetCommitResponseTopic(Struct, frozen=True, kw_only=True):
    """The result for one topic's offsets."""

    name: String
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@message(api_key=28, versions=(0, 5), flexible_since=3)
class TxnOffsetCommitResponse(Message, frozen=True, kw_only=True):
    """The result for each offset."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...]


class WritableTxnMarkerTopic(Struct, frozen=True, kw_only=True):
    """Partitions of one topic in which a transaction ends."""

    name: String
    partition_indexes: tuple[Int32, ...]


class WritableTxnMarker(Struct, frozen=True, kw_only=True):
    """The outcome of a producer's transaction, and its partitions."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, since(2), IGNORABLE] = 0


@message(api_key=27, versions=(1, 2), flexible_since=1)
class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"], frozen=True, kw_only=True):
    """Write transaction markers; between brokers, and for tools that end hanging transactions."""

    markers: tuple[WritableTxnMarker, ...]


class WritableTxnMarkerPartitionResult(Struct, frozen=True, kw_only=True):
    """The result of one marker."""

    partition_index: Int32
    error_code: Int16


class WritableTxnMarkerTopicResult(Struct, frozen=True, kw_only=True):
    """The result of the markers of one topic."""

    name: String
    partitions: tuple[WritableTxnMarkerPartitionResult, ...]


class WritableTxnMarkerResult(Struct, frozen=True, kw_only=True):
    """The result of the markers of one producer."""

    producer_id: Int64
    topics: tuple[WritableTxnMarkerTopicResult, ...]


@message(api_key=27, versions=(1, 2), flexible_since=1)
class WriteTxnMarkersResponse(Message, frozen=True, kw_only=True):
    """The result of each marker."""

    markers: tuple[WritableTxnMarkerResult, ...]
