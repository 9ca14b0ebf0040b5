"""Show the last 3 records of each partition, as `kcat -o -3` does, without a group.

Prints:
    partition 0: 94 96 98
    partition 1: 95 97 99
"""

from __future__ import annotations

from kohort import Consumer, TopicPartition
from tests.usage.around import start, topic_with


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, 100, partitions=2)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        partitions = [TopicPartition(topic, number) for number in (0, 1)]
        consumer.assign(partitions)
        firsts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        for partition in partitions:
            consumer.seek(partition, max(firsts[partition], ends[partition] - 3))
        last: dict[int, list[str]] = {0: [], 1: []}
        while any(len(values) < 3 for values in last.values()):
            for partition, records in consumer.poll(timeout_ms=1_000).items():
                last[partition.partition] += [record.value.decode() for record in records]
    for number, values in last.items():
        print(f"partition {number}:", *values)


if __name__ == "__main__":
    start(main)
