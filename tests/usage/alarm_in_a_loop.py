"""A loop whose time limit is an alarm with a handler that raises.

The alarm may go off while the consumer is working. The loop is started again, and each record is
read once.

Prints:
    records 500, each once: True
    committed 500
"""

from __future__ import annotations

import signal

from kohort import Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique


class TimeIsUpError(Exception):
    pass


def read(consumer: Consumer, seen: list[int]) -> None:
    """Read to the end; in a function, because in 3.13.0 a loop jumps back outside of its `try`."""
    for record in consumer:
        seen.append(record.offset)
        if len(seen) == 500:
            return


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 500), unique("reports")
    is_armed = False
    seen: list[int] = []

    def ring(*_: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise TimeIsUpError

    signal.signal(signal.SIGALRM, ring)
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        seen.append(next(consumer).offset)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        while len(seen) < 500:
            try:
                is_armed = True
                read(consumer, seen)
                is_armed = False
            except TimeIsUpError:
                continue
        signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"records {len(seen)}, each once:", seen == list(range(500)))
    print("committed", stored(bootstrap, group).get(0))


if __name__ == "__main__":
    start(main)
