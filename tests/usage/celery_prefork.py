"""A Celery-like pool: the parent forks workers, whose tasks send through a lazily created producer.

Workers end with `os._exit`, like billiard's, after their shutdown hook has closed the producer; the
parent also had one, created before the fork.

Prints:
    workers ended with [0, 0, 0]
    31 records, 31 different
"""

from __future__ import annotations

import os

from kohort import Producer
from tests.usage.around import start, topic_with, values_in

producers: dict[int, Producer] = {}


def producer(bootstrap: str) -> Producer:
    """The producer of this process."""
    if os.getpid() not in producers:
        producers[os.getpid()] = Producer(bootstrap_servers=bootstrap)
    return producers[os.getpid()]


def work(bootstrap: str, topic: str, worker: int) -> None:
    for number in range(10):
        producer(bootstrap).send(topic, f"{worker}.{number}".encode())
    producers.pop(os.getpid()).close()


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    producer(bootstrap).send(topic, b"parent").result(60)
    workers: list[int] = []
    for worker in range(3):
        pid = os.fork()
        if pid == 0:
            work(bootstrap, topic, worker)
            os._exit(0)
        workers.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
    print("workers ended with", codes)
    producer(bootstrap).close()
    values = values_in(bootstrap, topic)
    print(len(values), "records,", len({*values}), "different")


if __name__ == "__main__":
    start(main)
