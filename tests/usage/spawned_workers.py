"""A pool of worker processes, started with `spawn`, as on macOS and in every ML pipeline.

Each process creates its own consumer, all in one group; their counts add up.

Prints:
    3 workers counted 300 records
    committed {0: 100, 1: 100, 2: 100}
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.sharedctypes import Synchronized

from kohort import Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique


def count(
    bootstrap: str, topic: str, group: str, protocol: Protocol, total: Synchronized[int]
) -> None:
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        while total.value < 300:
            for records in consumer.poll(timeout_ms=100).values():
                with total.get_lock():
                    total.value += len(records)


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 300, partitions=3), unique("pool")
    context = multiprocessing.get_context("spawn")
    total = context.Value("i", 0)
    workers = [
        context.Process(target=count, args=(bootstrap, topic, group, protocol, total))
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(len(workers), "workers counted", total.value, "records")
    print("committed", dict(sorted(stored(bootstrap, group).items())))


if __name__ == "__main__":
    start(main)
