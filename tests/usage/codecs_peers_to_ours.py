"""Compressed by confluent-kafka and kafka-python, read by kohort as records and as Arrow.

Prints:
    gzip: confluent-kafka's 500 and 500, kafka-python's 500 and 500
    snappy: confluent-kafka's 500 and 500, kafka-python's 500 and 500
    lz4: confluent-kafka's 500 and 500, kafka-python's 500 and 500
    zstd: confluent-kafka's 500 and 500, kafka-python's 500 and 500
"""

from __future__ import annotations

from kafka import KafkaProducer

from kohort import Consumer, TopicPartition
from tests.usage.around import start, topic_with, write

VALUES = [f"order {number} of customer {number % 7}" for number in range(500)]


def main(bootstrap: str) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        first, second = topic_with(bootstrap), topic_with(bootstrap)
        write(bootstrap, first, VALUES, codec=codec)
        python = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20)
        for value in VALUES:
            python.send(second, value.encode(), partition=0)
        python.close()
        read = [
            f"{records(bootstrap, each)} and {rows(bootstrap, each)}" for each in (first, second)
        ]
        print(f"{codec}: confluent-kafka's {read[0]}, kafka-python's {read[1]}")


def records(bootstrap: str, topic: str) -> int:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read: list[str] = []
        while len(read) < len(VALUES):
            for some in consumer.poll(timeout_ms=1_000).values():
                read += [record.value.decode() for record in some]
    return sum(a == b for a, b in zip(read, VALUES, strict=True))


def rows(bootstrap: str, topic: str) -> int:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read: list[str] = []
        while len(read) < len(VALUES):
            batch = consumer.poll_arrow(timeout_ms=1_000)
            read += [value.decode() for value in batch.column("value").to_pylist()]
    return sum(a == b for a, b in zip(read, VALUES, strict=True))


if __name__ == "__main__":
    start(main)
