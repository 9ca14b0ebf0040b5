"""Ctrl-C while the producer of a function closes; the program continues without that producer.

It is no longer referenced, but its records are sent, and each future completes.

Prints:
    interrupted while closing: 20 times
    futures that end well: 80 of 80
    rows of the tables: 2000
    records beside them: 60
"""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from kohort import Producer
from tests.usage.around import start, topic_with, values_in


def press(_: object) -> None:
    """Press Ctrl-C, from the client's thread, on the first acknowledgement: `close` waits."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def job(bootstrap: str, topic: str, clock: str, futures: list[Future[Any]]) -> None:
    """Send a few records and a table, and end before they are acknowledged."""
    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer:
        producer.send(clock, b"tick").add_done_callback(press)
        futures += [producer.send(topic, b"single") for _ in range(3)]
        futures.append(producer.send_arrow(topic, pa.table({"value": [b"row"] * 100})))


def main(bootstrap: str) -> None:
    topic, clock = topic_with(bootstrap), topic_with(bootstrap)
    futures: list[Future[Any]] = []
    interrupted = 0
    for _ in range(20):
        try:
            job(bootstrap, topic, clock, futures)
        except KeyboardInterrupt:
            interrupted += 1
    print("interrupted while closing:", interrupted, "times")
    well = [each for each in futures if each.exception(60) is None]
    print("futures that end well:", len(well), "of", len(futures))
    values = values_in(bootstrap, topic)
    print("rows of the tables:", values.count("row"))
    print("records beside them:", values.count("single"))


if __name__ == "__main__":
    start(main)
