"""DescribeProducers and ListTransactions: who writes, and how far they are (KIP-664)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.schema import (
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
    struct,
)


@struct
class DescribeProducersTopic(Struct):
    """The partitions of one topic that are asked about."""

    name: String
    partition_indexes: tuple[Int32, ...]


@message(api_key=61, versions=(0, 0), flexible_since=0)
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    """Ask which idempotent producers write to partitions."""

    topics: tuple[DescribeProducersTopic, ...]


@struct
class ProducerState(Struct):
    """A producer, and the last that it wrote."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@struct
class DescribeProducersPartition(Struct):
    """The producers of one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString = None
    active_producers: tuple[ProducerState, ...]


@struct
class DescribeProducersTopicResponse(Struct):
    """The producers of one topic."""

    name: String
    partitions: tuple[DescribeProducersPartition, ...]


@message(api_key=61, versions=(0, 0), flexible_since=0)
class DescribeProducersResponse(Message):
    """The producers."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeProducersTopicResponse, ...]


@message(api_key=66, versions=(0, 2), flexible_since=0)
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    """Ask which transactional producers there are."""

    state_filters: tuple[String, ...]
    producer_id_filters: tuple[Int64, ...]
    duration_filter: Annotated[Int64, since(1)] = -1
    transactional_id_pattern: Annotated[NullableString, since(2)] = None


@struct
class ListedTransaction(Struct):
    """A transactional producer."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String


@message(api_key=66, versions=(0, 2), flexible_since=0)
class ListTransactionsResponse(Message):
    """The transactional producers."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: tuple[String, ...]
    transaction_states: tuple[ListedTransaction, ...]
