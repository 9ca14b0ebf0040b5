"""DescribeProducers and ListTransactions: who writes (KIP-664)."""

from __future__ import annotations

import re2  # type: ignore[import-untyped]  # google-re2 comes without type hints

from kohort.broker.context import BrokerContext, Caller
from kohort.broker.handlers.topics import is_legal
from kohort.errors import ErrorCode, KafkaError, clipped
from kohort.wire.messages.transactions import (
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
)

# What Kafka calls the states of a transaction; only these can be asked for.
_STATES = frozenset(
    {
        "Dead",
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
    }
)
_QUIET = re2.Options()
_QUIET.log_errors = False


def describe_producers(
    broker: BrokerContext, request: DescribeProducersRequest, _caller: Caller
) -> DescribeProducersResponse:
    """Name the idempotent producers that each partition remembers."""
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
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} is no topic's name")
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
            producer_id=producer_id,
            producer_epoch=epoch,
            last_sequence=batch.last_sequence,
            last_timestamp=batch.timestamp,
            coordinator_epoch=-1,
        )
        for producer_id, epoch, batch in producers.newest()
    )
    return DescribeProducersPartition(
        partition_index=number, error_code=ErrorCode.NONE, active_producers=tuple(states)
    )


def list_transactions(
    _broker: BrokerContext, request: ListTransactionsRequest, _caller: Caller
) -> ListTransactionsResponse:
    """Name no transactions, for this broker refuses to begin any."""
    unknown = tuple(state for state in request.state_filters if state not in _STATES)
    code = ErrorCode.NONE
    try:
        re2.compile(request.transactional_id_pattern or "", _QUIET)
    except re2.error:
        code = ErrorCode.INVALID_REGULAR_EXPRESSION
    return ListTransactionsResponse(
        error_code=code, unknown_state_filters=unknown, transaction_states=()
    )
