"""The parent sends jobs, then forks workers that create their own consumers: both must work.

The parent's clients stay its own: after the workers have ended, its producer still sends.

Prints:
    3 workers counted 300 records
    the parent still sends: offset 100
    exit codes [0, 0, 0]
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.sharedctypes import Synchronized

from kohort import Consumer, Producer
from tests.usage.around import Protocol, start, topic_with, unique


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
    topic, group = topic_with(bootstrap, partitions=3), unique("pool")
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(300):
            producer.send(topic, str(number).encode(), partition=number % 3)
        producer.flush()
        context = multiprocessing.get_context("fork")
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
        where = producer.send(topic, b"one more", partition=0).result(60)
        print("the parent still sends: offset", where.offset)
    print("exit codes", [worker.exitcode for worker in workers])


if __name__ == "__main__":
    start(main)
