"""Half of a system writes with confluent-kafka, half with kohort: equal keys, equal partitions.

librdkafka's default partitioner is not Java's; `partitioner="consistent_random"` is librdkafka's,
`"murmur2"` Java's.

Prints:
    consistent_random: 200 of 200 keys as confluent-kafka
    murmur2: 200 of 200 keys as kafka-python
    a function: {2}
"""

from __future__ import annotations

from typing import Any

import confluent_kafka as confluent
from kafka import KafkaProducer

from kohort import Producer
from tests.usage.around import start, topic_with

KEYS = [f"customer-{number}".encode() for number in range(200)]


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, partitions=7)
    theirs: dict[bytes | None, int | None] = {}
    librdkafka = confluent.Producer({"bootstrap.servers": bootstrap})
    for key in KEYS:
        librdkafka.produce(
            topic,
            b"",
            key,
            on_delivery=lambda _, told: theirs.update({told.key(): told.partition()}),
        )
    librdkafka.flush(60)
    ours = partitions(bootstrap, topic, "consistent_random")
    same = sum(theirs[key] == ours[key] for key in KEYS)
    print(f"consistent_random: {same} of {len(KEYS)} keys as confluent-kafka")

    python = KafkaProducer(bootstrap_servers=bootstrap)
    sent = {key: python.send(topic, b"", key) for key in KEYS}
    ours = partitions(bootstrap, topic, "murmur2")
    same = sum(sent[key].get(60).partition == ours[key] for key in KEYS)
    print(f"murmur2: {same} of {len(KEYS)} keys as kafka-python")
    python.close()

    def always_the_third(topic: str, key: bytes | None, partitions: int) -> int:
        return 2

    print("a function:", {*partitions(bootstrap, topic, always_the_third).values()})


def partitions(bootstrap: str, topic: str, partitioner: Any) -> dict[bytes, int]:
    with Producer(bootstrap_servers=bootstrap, partitioner=partitioner) as producer:
        sent = {key: producer.send(topic, b"", key=key) for key in KEYS}
        return {key: future.result(60).partition for key, future in sent.items()}


if __name__ == "__main__":
    start(main)
