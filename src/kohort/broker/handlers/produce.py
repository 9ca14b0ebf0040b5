"""Produce: append batches, including transactional ones."""

from __future__ import annotations

from uuid import UUID

from kohort.broker.context import BrokerContext, Caller
from kohort.broker.coordination.transactions import INTERNAL_TOPICS
from kohort.broker.log.directory import Topic
from kohort.broker.log.partition_log import PartitionLog
from kohort.broker.log.validation import MOST_NAMED, RefusedRecordsError
from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError, clipped
from kohort.group.transactions.events import Producer
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Buffer
from kohort.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kohort.wire.records import parse_header

_ACKS = (-1, 0, 1)
_JOINS_SINCE = 12  # since this version of Produce, a write joins the transaction (KIP-890)
_ABORTABLE_SINCE = 11
# For each error of the transaction coordinator, the error in the response, as in Kafka.
_JOIN_ERRORS = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
}


class _Named:
    """Lists refused records in a response (KIP-467), up to a limit.

    Without a limit, a small, well-compressed request could cause a response of gigabytes.
    """

    def __init__(self) -> None:
        self._left = MOST_NAMED

    def records_of(self, error: KafkaError) -> tuple[BatchIndexAndErrorMessage, ...]:
        """Return the records that an error refers to, up to the remaining limit."""
        if not isinstance(error, RefusedRecordsError):
            return ()
        indexes = error.indexes[: self._left]
        self._left -= len(indexes)
        return tuple(
            BatchIndexAndErrorMessage(batch_index=each, batch_index_error_message=error.reason)
            for each in indexes
        )


def produce(
    broker: BrokerContext, request: ProduceRequest, caller: Caller
) -> ProduceResponse | None:
    """Append batches; answer once they are with the operating system.

    With acks=0 there is no response. With a single node, acks=1 and acks=all are the same.

    Raises:
        RemoteProtocolError: A batch with acks=0 was refused; the connection is closed.
    """
    named = _Named()
    asked = _last_of_each(request.topic_data)
    topics = tuple(_topic(broker, request, data, caller, named) for data in asked)
    if request.acks != 0:
        return ProduceResponse(responses=topics)
    failed = [part for topic in topics for part in topic.partition_responses if part.error_code]
    if failed:
        # There is no other way to make the client refresh its metadata.
        raise RemoteProtocolError(f"produced without acknowledgement: {failed[0].error_message}")
    return None


def _last_of_each(data: tuple[TopicProduceData, ...]) -> list[TopicProduceData]:
    """Return the data of each topic; for a partition that is named twice the last, as in Kafka."""
    topics: dict[tuple[str, UUID], dict[int, PartitionProduceData]] = {}
    for topic in data:
        partitions = topics.setdefault((topic.name, topic.topic_id), {})
        partitions.update((partition.index, partition) for partition in topic.partition_data)
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=tuple(partitions.values()))
        for (name, topic_id), partitions in topics.items()
    ]


def _topic(
    broker: BrokerContext,
    request: ProduceRequest,
    data: TopicProduceData,
    caller: Caller,
    named: _Named,
) -> TopicProduceResponse:
    if caller.version >= 13:
        topic, missing = broker.topic_by_id(data.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = broker.data.topics.get(data.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    results = []
    for partition in data.partition_data:
        try:
            if topic is None:
                raise KafkaError(missing)
            results.append(_append(broker, request, topic, partition, caller.version))
        except KafkaError as error:
            results.append(_refused(partition.index, error, named))
    return TopicProduceResponse(
        name=data.name, topic_id=data.topic_id, partition_responses=tuple(results)
    )


def _append(
    broker: BrokerContext,
    request: ProduceRequest,
    topic: Topic,
    data: PartitionProduceData,
    version: int,
) -> PartitionProduceResponse:
    if request.acks not in _ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic.name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients cannot write to {topic.name}")
    if not 0 <= data.index < topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = TopicPartition(topic.name, data.index)
    log = broker.data.log(partition)
    _join(broker, request, partition, log, data.records or b"", version)
    appended = log.append(data.records or b"", broker.wall_ms())
    if not appended.duplicate:
        broker.appends.appended(partition)
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time,
        log_start_offset=log.log_start_offset,
    )


def _join(
    broker: BrokerContext,
    request: ProduceRequest,
    partition: TopicPartition,
    log: PartitionLog,
    records: Buffer,
    version: int,
) -> None:
    """Ensure that a transactional batch is written to a partition of the transaction (KIP-890).

    The log was already checked for an open transaction.
    """
    try:
        header = parse_header(records)
    except RemoteProtocolError:
        return  # the log rejects it with the reason
    by = Producer(header.producer_id, header.producer_epoch)
    if not header.is_transactional or log.producers.is_open(by.producer_id, by.epoch):
        return
    implied = version >= _JOINS_SINCE
    try:
        broker.transactions.join(request.transactional_id, by, partition, implied=implied)
    except KafkaError as error:
        code = _JOIN_ERRORS.get(ErrorCode(error.code), ErrorCode(error.code))
        if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
            code = ErrorCode.INVALID_TXN_STATE
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and not implied:
            code = ErrorCode.NOT_ENOUGH_REPLICAS
        raise KafkaError(code, error.message) from error
    if implied and header.base_sequence > 0 and not log.producers.has_batches(by.producer_id):
        # each epoch of this producer starts at 0, so an earlier batch is missing
        text = f"{by} begins with sequence number {header.base_sequence}"
        raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)


def _refused(index: int, error: KafkaError, named: _Named) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=named.records_of(error),
        error_message=clipped(error.message),
    )
