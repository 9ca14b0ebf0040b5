"""Queries about producers (KIP-664): DescribeProducers, DescribeTransactions, ListTransactions."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
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
)


class DescribeProducersTopic(Struct, frozen=True, kw_only=True):
    """The requested partitions of one topic."""

    name: String
    partition_indexes: tuple[Int32, ...]


@message(api_key=61, versions=(0, 0), flexible_since=0)
class DescribeProducersRequest(Request["DescribeProducersResponse"], frozen=True, kw_only=True):
    """Ask which idempotent producers write to partitions."""

    topics: tuple[DescribeProducersTopic, ...]


class ProducerState(Struct, frozen=True, kw_only=True):
    """A producer, and its last write."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


class DescribeProducersPartition(Struct, frozen=True, kw_only=True):
    """The producers of one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString = None
    active_producers: tuple[ProducerState, ...]


class DescribeProducersTopicResponse(Struct, frozen=True, kw_only=True):
    """The producers of one topic."""

    name: String
    partitions: tuple[DescribeProducersPartition, ...]


@message(api_key=61, versions=(0, 0), flexible_since=0)
class DescribeProducersResponse(Message, frozen=True, kw_only=True):
    """The producers."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeProducersTopicResponse, ...]


@message(api_key=66, versions=(0, 2), flexible_since=0)
class ListTransactionsRequest(Request["ListTransactionsResponse"], frozen=True, kw_only=True):
    """Ask for transactional producers."""

    state_filters: tuple[String, ...]
    producer_id_filters: tuple[Int64, ...]
    duration_filter: Annotated[Int64, since(1)] = -1
    transactional_id_pattern: Annotated[NullableString, since(2)] = None


class ListedTransaction(Struct, frozen=True, kw_only=True):
    """A transactional producer."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String


@message(api_key=66, versions=(0, 2), flexible_since=0)
class ListTransactionsResponse(Message, frozen=True, kw_only=True):
    """The transactional producers."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: tuple[String, ...]
    transaction_states: tuple[ListedTransaction, ...]


@message(api_key=65, versions=(0, 0), flexible_since=0)
class DescribeTransactionsRequest(
    Request["DescribeTransactionsResponse"], frozen=True, kw_only=True
):
    """Ask for the state of transactions."""

    transactional_ids: tuple[String, ...]


class TransactionTopic(Struct, frozen=True, kw_only=True):
    """Partitions of one topic in the transaction."""

    topic: String
    partitions: tuple[Int32, ...]


class DescribedTransaction(Struct, frozen=True, kw_only=True):
    """A transactional producer, and the state of its transaction."""

    error_code: Int16
    transactional_id: String
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[TransactionTopic, ...] = ()


@message(api_key=65, versions=(0, 0), flexible_since=0)
class DescribeTransactionsResponse(Message, frozen=True, kw_only=True):
    """The states of the transactions."""

    throttle_time_ms: Int32 = 0
    transaction_states: tuple[DescribedTransaction, ...]
