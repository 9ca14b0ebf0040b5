"""Produce and InitProducerId."""

from __future__ import annotations

from uuid import UUID

from kohort.broker.context import BrokerContext, Caller
from kohort.broker.coordinator import OFFSETS_TOPIC
from kohort.broker.log.directory import Topic
from kohort.broker.log.validation import MOST_NAMED, RefusedRecordsError
from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError, clipped
from kohort.types import TopicPartition
from kohort.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kohort.wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse

_ACKS = (-1, 0, 1)


class _Named:
    """Names the records that were refused (KIP-467): so many in one answer.

    Without a limit a small request, well compressed, would have an answer of gigabytes.
    """

    def __init__(self) -> None:
        self._left = MOST_NAMED

    def records_of(self, error: KafkaError) -> tuple[BatchIndexAndErrorMessage, ...]:
        """Return the records that an error is about, as far as there is room for them."""
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
    """Append batches; the answer comes once they are with the operating system.

    With acks=0 there is no answer. With one node acks=1 and acks=all are the same.

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
        # No other way is left to tell the client that it should look where its partitions are.
        raise RemoteProtocolError(f"produced without acknowledgement: {failed[0].error_message}")
    return None


def _last_of_each(data: tuple[TopicProduceData, ...]) -> list[TopicProduceData]:
    """Return what is for each topic; of a partition that is named twice the last, as in Kafka."""
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
            results.append(_append(broker, request, topic, partition))
        except KafkaError as error:
            results.append(_refused(partition.index, error, named))
    return TopicProduceResponse(
        name=data.name, topic_id=data.topic_id, partition_responses=tuple(results)
    )


def _append(
    broker: BrokerContext, request: ProduceRequest, topic: Topic, data: PartitionProduceData
) -> PartitionProduceResponse:
    if request.acks not in _ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic.name == OFFSETS_TOPIC:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the offsets topic is not for clients")
    if not 0 <= data.index < topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = TopicPartition(topic.name, data.index)
    log = broker.data.log(partition)
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


def _refused(index: int, error: KafkaError, named: _Named) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=named.records_of(error),
        error_message=clipped(error.message),
    )


def init_producer_id(
    broker: BrokerContext, request: InitProducerIdRequest, _caller: Caller
) -> InitProducerIdResponse:
    """Give an idempotent producer an id; one that has an id gets another, as Kafka does it."""
    knows_one_half = (request.producer_id >= 0) != (request.producer_epoch >= 0)
    if knows_one_half or request.transactional_id == "":
        return _no_producer_id(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        # Authorization is the one refusal that every client reports at once and never retries.
        return _no_producer_id(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = broker.data.next_producer_id()
    except KafkaError as error:
        return _no_producer_id(error.code)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _no_producer_id(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
