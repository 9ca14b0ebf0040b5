"""Scale a service from 1 to 3 and back to 1 while records flow: every record is processed.

Prints:
    all 600 were processed
    committed 600
"""

from __future__ import annotations

import threading

from kohort import Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique, until, write


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, partitions=6), unique("scaled")
    seen: set[str] = set()

    def serve(stop: threading.Event, ready: threading.Event) -> None:
        with Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            while not stop.is_set():
                for records in consumer.poll(timeout_ms=100).values():
                    seen.update(record.value.decode() for record in records)
                if consumer.assignment():
                    ready.set()

    running: list[tuple[threading.Thread, threading.Event]] = []
    written = 0

    def some_more() -> None:
        nonlocal written
        values = [str(written + number) for number in range(120)]
        write(bootstrap, topic, values, partitions=6)
        written += 120

    for _ in range(3):
        stop, ready = threading.Event(), threading.Event()
        thread = threading.Thread(target=serve, args=(stop, ready))
        thread.start()
        running.append((thread, stop))
        some_more()
        ready.wait(60)
    for thread, stop in running[:2]:
        stop.set()
        some_more()
        thread.join()
    until(lambda: len(seen) >= written, "all is processed")
    print("all", len(seen), "were processed")
    running[2][1].set()
    running[2][0].join()
    print("committed", sum(stored(bootstrap, group).values()))


if __name__ == "__main__":
    start(main)
