"""Produce: append record batches to partitions."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    ZERO_UUID,
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


class PartitionProduceData(Struct, frozen=True, kw_only=True):
    """The batches for one partition."""

    index: Int32
    records: Records


class TopicProduceData(Struct, frozen=True, kw_only=True):
    """The batches for one topic."""

    name: Annotated[String, until(12), IGNORABLE] = ""
    topic_id: Annotated[Uuid, since(13), IGNORABLE] = ZERO_UUID
    partition_data: tuple[PartitionProduceData, ...]


@message(api_key=0, versions=(3, 13), flexible_since=9)
class ProduceRequest(Request["ProduceResponse"], frozen=True, kw_only=True):
    """Append record batches; with acks 0 there is no response."""

    transactional_id: NullableString = None
    acks: Int16
    timeout_ms: Int32
    topic_data: tuple[TopicProduceData, ...]


class BatchIndexAndErrorMessage(Struct, frozen=True, kw_only=True):
    """A refused record, and the reason (KIP-467)."""

    batch_index: Int32
    batch_index_error_message: NullableString = None


class LeaderIdAndEpoch(Struct, frozen=True, kw_only=True):
    """The leader of a partition."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct, frozen=True, kw_only=True):
    """The offset of the batches, or the error."""

    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, since(5), IGNORABLE] = -1
    record_errors: Annotated[tuple[BatchIndexAndErrorMessage, ...], since(8), IGNORABLE] = ()
    error_message: Annotated[NullableString, since(8), IGNORABLE] = None
    current_leader: Annotated[LeaderIdAndEpoch, since(10), Tag(0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Struct, frozen=True, kw_only=True):
    """The results for one topic."""

    name: Annotated[String, until(12), IGNORABLE] = ""
    topic_id: Annotated[Uuid, since(13), IGNORABLE] = ZERO_UUID
    partition_responses: tuple[PartitionProduceResponse, ...]


class NodeEndpoint(Struct, frozen=True, kw_only=True):
    """The address of a leader, so that a client need not ask again (KIP-951)."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None


@message(api_key=0, versions=(3, 13), flexible_since=9)
class ProduceResponse(Message, frozen=True, kw_only=True):
    """The result for each partition."""

    responses: tuple[TopicProduceResponse, ...]
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], since(10), Tag(0)] = ()
