"""Produce requests for batches, and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from kohort.client.config.definitions import ProducerConfig
from kohort.client.producer.batch import Batch
from kohort.errors import ErrorCode, KafkaError, KohortError, told_by_server, with_right
from kohort.types import TopicPartition
from kohort.wire.codec.schema import ZERO_UUID
from kohort.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


def produce_request(
    batches: Iterable[Batch], config: ProducerConfig, timeout_ms: int
) -> ProduceRequest:
    """Return the Produce request for batches.

    Args:
        batches: At most one per partition.
        config: Settings.
        timeout_ms: How long the broker may wait for replicas, in milliseconds.
    """
    transaction = config.transactional_id
    topics: dict[tuple[str, UUID], list[PartitionProduceData]] = {}
    for batch in batches:
        topic, partition = batch.partition
        records = batch.encode(config.codec, is_transactional=transaction is not None)
        data = PartitionProduceData(index=partition, records=records)
        topics.setdefault((topic, batch.topic_id or ZERO_UUID), []).append(data)
    return ProduceRequest(
        transactional_id=transaction,
        acks=config.required_acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(
            TopicProduceData(name=name, topic_id=topic_id, partition_data=tuple(data))
            for (name, topic_id), data in topics.items()
        ),
    )


def answers_of(
    request: ProduceRequest, response: ProduceResponse
) -> Mapping[TopicPartition, PartitionProduceResponse]:
    """Return the broker's answer for each partition."""
    names = {topic.topic_id: topic.name for topic in request.topic_data if topic.topic_id.int}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), each.index): each
        for topic in response.responses
        for each in topic.partition_responses
    }


def refusal_of(partition: TopicPartition, answer: PartitionProduceResponse) -> KafkaError:
    """Return the error with which the broker refuses a batch."""
    texts = [named(partition), told_by_server(answer.error_message)]
    code = answer.error_code
    if code == ErrorCode.UNKNOWN_TOPIC_ID:  # applications know topics by name
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    said = ": ".join(text for text in texts if text)
    return KafkaError(code, with_right(code, said, "WRITE"))


def named(partition: TopicPartition) -> str:
    """Return the name of a partition in messages."""
    return f"{partition.topic}-{partition.partition}"


def reasons_of(
    partition: TopicPartition, answer: PartitionProduceResponse
) -> dict[int, KohortError]:
    """Return why the broker refuses records of a batch, by their index in it (KIP-467)."""
    where = named(partition)
    return {
        each.batch_index: KafkaError(
            answer.error_code,
            f"{where}: {told_by_server(each.batch_index_error_message) or 'it is refused'}",
        )
        for each in answer.record_errors
    }
