"""A loop is left, `poll` returns some records, and a second loop raises at its first record.

The records of the poll are processed by then, because the loop asked for more; the record that
raised is not.

Prints:
    each run stored what was done: True
"""

from __future__ import annotations

from kohort import Consumer, Producer, TopicPartition
from tests.usage.around import start, stored, topic_with, unique

RUNS = 12


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, partitions=2)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(20):
            for partition in (0, 1):
                producer.send(topic, b"%d" % number, partition=partition)
            producer.flush()  # small batches: a fetch returns only some
    found = [run(bootstrap, topic, number) for number in range(RUNS)]
    print("each run stored what was done:", all(found) or found)


def run(bootstrap: str, topic: str, number: int) -> bool:
    group, done = unique("mixed"), {0: 0, 1: 0}
    try:
        with Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=100,
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
            for count, record in enumerate(consumer):
                done[record.partition] = record.offset + 1
                if count == number % 5:
                    break
            for records in consumer.poll(timeout_ms=30_000, max_records=1 + number % 4).values():
                for record in records:
                    done[record.partition] = record.offset + 1
            for _ in consumer:
                raise RuntimeError("this record cannot be processed")
    except RuntimeError:
        pass
    committed = stored(bootstrap, group)
    return {partition: committed.get(partition) or 0 for partition in done} == done


if __name__ == "__main__":
    start(main)
