"""Batches as requests to produce them, and the answers to those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.client.accumulator import Batch
from kohort.client.config import ProducerConfig
from kohort.errors import KafkaError, KohortError
from kohort.types import TopicPartition
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
    """Return the request that brings batches to their broker.

    Args:
        batches: At most one of each partition.
        config: Settings.
        timeout_ms: How long the broker may wait for replicas.
    """
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        topic, partition = batch.partition
        data = PartitionProduceData(index=partition, records=batch.encode(config.codec))
        topics.setdefault(topic, []).append(data)
    return ProduceRequest(
        acks=config.required_acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(
            TopicProduceData(name=name, partition_data=tuple(data)) for name, data in topics.items()
        ),
    )


def answers_of(response: ProduceResponse) -> Mapping[TopicPartition, PartitionProduceResponse]:
    """Return what the broker says of each partition."""
    return {
        TopicPartition(topic.name, each.index): each
        for topic in response.responses
        for each in topic.partition_responses
    }


def reasons_of(answer: PartitionProduceResponse, where: str) -> dict[int, KohortError]:
    """Return why the broker refuses records of a batch, by their place in it (KIP-467)."""
    return {
        each.batch_index: KafkaError(
            answer.error_code, f"{where}: {each.batch_index_error_message or 'it is refused'}"
        )
        for each in answer.record_errors
    }
