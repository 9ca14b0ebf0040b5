"""Helpers for the programs here: topics with records, and checks of stored data.

Uses confluent-kafka, so that our code does not verify itself.
"""

from __future__ import annotations

import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import confluent_kafka as confluent
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it is exported all the same

PATIENCE_S = 60.0

Protocol: TypeAlias = Literal["classic", "consumer"]
"""The group protocols that each member can speak."""


def start(main: Callable[..., None]) -> None:
    """Run a program with the command line's arguments: an address, optionally a protocol."""
    # a shell starts background jobs with Ctrl-C disabled
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(*sys.argv[1:])


def unique(stem: str) -> str:
    """A unique name."""
    return f"{stem}-{uuid.uuid4().hex[:10]}"


def topic_with(
    bootstrap: str,
    records: int = 0,
    *,
    partitions: int = 1,
    name: str = "",
    configs: Mapping[str, str] | None = None,
) -> str:
    """Create a topic with the values 0, 1, 2 ... in its partitions in turn; return its name."""
    name = name or unique("orders")
    new = NewTopic(name, partitions, 1, config=dict(configs or {}))
    client = admin(bootstrap)
    client.create_topics([new])[name].result(PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while client.list_topics(name, PATIENCE_S).topics[name].error and time.monotonic() < end:
        pass  # the controller knows it, and a broker learns of it shortly after
    write(bootstrap, name, [str(number) for number in range(records)], partitions=partitions)
    return name


def write(
    bootstrap: str, topic: str, values: list[str], *, partitions: int = 1, codec: str = "none"
) -> None:
    """Append values to a topic's partitions in turn."""
    producer = confluent.Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def stored(bootstrap: str, group: str) -> dict[int, int]:
    """The committed offsets of a group, by partition number."""
    asked = [confluent.ConsumerGroupTopicPartitions(group)]
    client = admin(bootstrap)
    answer = client.list_consumer_group_offsets(asked)[group].result(PATIENCE_S)
    return {each.partition: each.offset for each in answer.topic_partitions}


def values_in(bootstrap: str, topic: str) -> list[str]:
    """All values of a topic, partition by partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": unique("look"), **_READ_TO_END}
    consumer = confluent.Consumer(settings)
    found: list[str] = []
    partitions = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
    for number in sorted(partitions):
        consumer.assign([confluent.TopicPartition(topic, number, confluent.OFFSET_BEGINNING)])
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            found.append((message.value() or b"-").decode())
    consumer.close()
    return found


_READ_TO_END = {"enable.partition.eof": True, "enable.auto.commit": False}


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.05)


def admin(bootstrap: str) -> Any:
    """confluent-kafka's admin client; keep it until its futures are done."""
    return AdminClient({"bootstrap.servers": bootstrap})
