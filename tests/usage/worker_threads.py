"""One thread polls, others work: partitions are paused while their records are processed.

Polling never stops, so the member stays in its group however long a record takes. A partition is
resumed, and its offset committed, once its records are processed.

Prints:
    processed 400, each once: True
    in order in each partition: True
    committed {0: 100, 1: 100, 2: 100, 3: 100}
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from kohort import Consumer, ConsumerRecord, OffsetAndMetadata, TopicPartition
from tests.usage.around import Protocol, start, stored, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 400, partitions=4), unique("workers")
    processed: list[tuple[int, int]] = []

    def work(records: list[ConsumerRecord]) -> int:
        processed.extend((record.partition, record.offset) for record in records)
        return records[-1].offset + 1

    at_work: dict[TopicPartition, Future[int]] = {}
    with (
        ThreadPoolExecutor(4) as pool,
        Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=30,
        ) as consumer,
    ):
        while len(processed) < 400 or at_work:
            for partition, records in consumer.poll(timeout_ms=50).items():
                consumer.pause(partition)
                at_work[partition] = pool.submit(work, records)
            for partition in [each for each, future in at_work.items() if future.done()]:
                offset = at_work.pop(partition).result()
                consumer.commit({partition: OffsetAndMetadata(offset)})
                consumer.resume(partition)
    print(f"processed {len(processed)}, each once:", len({*processed}) == len(processed))
    by_partition = [[o for p, o in processed if p == number] for number in range(4)]
    print("in order in each partition:", all(each == sorted(each) for each in by_partition))
    print("committed", dict(sorted(stored(bootstrap, group).items())))


if __name__ == "__main__":
    start(main)
