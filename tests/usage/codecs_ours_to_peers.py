"""Compressed by kohort, read by confluent-kafka and kafka-python: all codecs, the same records.

Prints:
    none: confluent-kafka 500, kafka-python 500
    gzip: confluent-kafka 500, kafka-python 500
    snappy: confluent-kafka 500, kafka-python 500
    lz4: confluent-kafka 500, kafka-python 500
    zstd: confluent-kafka 500, kafka-python 500
"""

from __future__ import annotations

from kafka import KafkaConsumer
from kafka import TopicPartition as TheirPartition

from kohort import Producer
from tests.usage.around import start, topic_with, values_in

VALUES = [f"order {number} of customer {number % 7}" for number in range(500)]


def main(bootstrap: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = topic_with(bootstrap)
        with Producer(
            bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20
        ) as producer:
            for value in VALUES:
                producer.send(topic, value.encode())
        confluent = sum(a == b for a, b in zip(values_in(bootstrap, topic), VALUES, strict=True))
        python = kafka_python_reads(bootstrap, topic)
        print(f"{codec}: confluent-kafka {confluent}, kafka-python {python}")


def kafka_python_reads(bootstrap: str, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TheirPartition(topic, 0)])
    read = [next(consumer).value.decode() for _ in VALUES]
    consumer.close()
    return sum(a == b for a, b in zip(read, VALUES, strict=True))


if __name__ == "__main__":
    start(main)
