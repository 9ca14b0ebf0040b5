"""DeleteRecords: move the start of a partition to a later offset (KIP-107)."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.broker.context import BrokerContext, Caller
from kohort.broker.coordination.transactions import INTERNAL_TOPICS
from kohort.errors import ErrorCode, KafkaError
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

_THE_END = -1


def delete_records(
    broker: BrokerContext, request: DeleteRecordsRequest, _caller: Caller
) -> DeleteRecordsResponse:
    """Move the start of partitions; the change is on disk before the response is sent."""
    topics = tuple(
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=tuple(_one(broker, topic.name, wanted) for wanted in _once(topic)),
        )
        for topic in request.topics
    )
    return DeleteRecordsResponse(topics=topics)


def _once(topic: DeleteRecordsTopic) -> Iterable[DeleteRecordsPartition]:
    """Return the partitions; for one that is named twice, the last request."""
    return {wanted.partition_index: wanted for wanted in topic.partitions}.values()


def _one(
    broker: BrokerContext, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    code, low_watermark = ErrorCode.NONE, -1
    try:
        low_watermark = _delete(broker, topic, wanted)
    except KafkaError as error:
        code = ErrorCode(error.code)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=code
    )


def _delete(broker: BrokerContext, topic: str, wanted: DeleteRecordsPartition) -> int:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is internal")
    log = broker.log(topic, wanted.partition_index)
    if not log.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} does not have cleanup.policy=delete")
    before = log.log_end_offset if wanted.offset == _THE_END else wanted.offset
    if before < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {before} does not exist")
    log.delete_records(before)
    return log.log_start_offset
