"""Topics and records made by a client that is not ours (librdkafka)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ForeignPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.real_kafka.known import until_coordinator_knows

TIMEOUT_S = 30


def new_topic(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic under a name of its own."""
    return create_topic(bootstrap, f"topic-{uuid.uuid4().hex[:12]}", partitions, **configs)


def create_topic(bootstrap: str, name: str, partitions: int, **configs: str) -> str:
    """Create a topic that the group coordinator knows, too; return its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(TIMEOUT_S)
    until_coordinator_knows(bootstrap, (name,))
    return name


def produce(bootstrap: str, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
    """Produce values into one partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    failed: list[object] = []
    told: dict[str, Any] = {"on_delivery": lambda error, _: failed.append(error) if error else None}
    for value in values:
        producer.produce(topic, value, partition=partition, **told)
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    """Do what retention does to the first partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    where = ForeignPartition(topic, 0, offset)
    admin.delete_records([where])[where].result(TIMEOUT_S)


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """A group's committed offset as librdkafka reads it; negative when there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([ForeignPartition(topic, partition)], TIMEOUT_S)
        return int(found.offset)
    finally:
        consumer.close()
