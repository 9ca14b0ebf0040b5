"""confluent-kafka's twin."""

from __future__ import annotations

import confluent_kafka as confluent

from tests.usage.around import start, topic_with, unique


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, 100, partitions=2)
    consumer = confluent.Consumer({"bootstrap.servers": bootstrap, "group.id": unique("tail")})
    partitions = [confluent.TopicPartition(topic, number) for number in (0, 1)]
    for partition in partitions:
        first, end = consumer.get_watermark_offsets(partition, 60)
        partition.offset = max(first, end - 3)
    consumer.assign(partitions)
    last: dict[int, list[str]] = {0: [], 1: []}
    while any(len(values) < 3 for values in last.values()):
        if (message := consumer.poll(1.0)) is not None:
            last[message.partition() or 0].append((message.value() or b"").decode())
    consumer.close()
    for number, values in last.items():
        print(f"partition {number}:", *values)


if __name__ == "__main__":
    start(main)
