"""Descriptions of producers and of transactions (KIP-664)."""

from __future__ import annotations

import re2  # type: ignore[import-untyped]  # google-re2 comes without type hints

from kohort.broker.context import BrokerContext, Caller
from kohort.broker.handlers.topics import is_legal
from kohort.errors import ErrorCode, KafkaError, clipped
from kohort.group.transactions.transaction import Transaction, TransactionState, by_topic
from kohort.wire.messages.transactions import (
    DescribedTransaction,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TransactionTopic,
)

# Kafka's names of transaction states, which are the only valid filters.
_STATES = frozenset({*(state.value for state in TransactionState), "PrepareEpochFence"})
_QUIET = re2.Options()
_QUIET.log_errors = False


def describe_producers(
    broker: BrokerContext, request: DescribeProducersRequest, _caller: Caller
) -> DescribeProducersResponse:
    """List the idempotent producers whose state each partition has."""
    topics = (
        DescribeProducersTopicResponse(
            name=topic.name,
            partitions=tuple(
                _partition(broker, topic.name, number) for number in topic.partition_indexes
            ),
        )
        for topic in request.topics
    )
    return DescribeProducersResponse(topics=tuple(topics))


def _partition(broker: BrokerContext, topic: str, number: int) -> DescribeProducersPartition:
    try:
        if not is_legal(topic):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} is not a topic name")
        producers = broker.log(topic, number).producers
    except KafkaError as error:
        return DescribeProducersPartition(
            partition_index=number,
            error_code=error.code,
            error_message=clipped(error.message),
            active_producers=(),
        )
    states = (
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last.last_sequence if each.last else -1,
            last_timestamp=each.last.timestamp if each.last else -1,
            coordinator_epoch=-1,
            current_txn_start_offset=-1 if each.open_since is None else each.open_since,
        )
        for each in producers.newest()
    )
    return DescribeProducersPartition(
        partition_index=number, error_code=ErrorCode.NONE, active_producers=tuple(states)
    )


def list_transactions(
    broker: BrokerContext, request: ListTransactionsRequest, _caller: Caller
) -> ListTransactionsResponse:
    """List the transactional producers that match all filters."""
    unknown = tuple(state for state in request.state_filters if state not in _STATES)
    try:
        pattern = re2.compile(request.transactional_id_pattern or ".*", _QUIET)
    except re2.error:
        return ListTransactionsResponse(
            error_code=ErrorCode.INVALID_REGULAR_EXPRESSION,
            unknown_state_filters=unknown,
            transaction_states=(),
        )
    now_ms = broker.wall_ms()
    known = (
        each
        for name, each in sorted(broker.transactions.known.items())
        if _passes(each, request, now_ms) and pattern.fullmatch(name)
    )
    listed = (
        ListedTransaction(
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            transaction_state=each.state.value,
        )
        for each in known
    )
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown,
        transaction_states=tuple(listed),
    )


def _passes(each: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.producer_id_filters and each.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and each.state.value not in request.state_filters:
        return False
    runs_ms = now_ms - each.start_ms if each.start_ms >= 0 else -1
    return request.duration_filter < 0 or runs_ms > request.duration_filter


def describe_transactions(
    broker: BrokerContext, request: DescribeTransactionsRequest, _caller: Caller
) -> DescribeTransactionsResponse:
    """Return the state of each transaction."""
    known = broker.transactions.known
    states = (_described(name, known.get(name)) for name in request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=tuple(states))


def _described(name: str, known: Transaction | None) -> DescribedTransaction:
    if known is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST
        return DescribedTransaction(error_code=code, transactional_id=name)
    return DescribedTransaction(
        error_code=ErrorCode.NONE,
        transactional_id=name,
        transaction_state=known.state.value,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=tuple(
            TransactionTopic(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(known.partitions)
        ),
    )
