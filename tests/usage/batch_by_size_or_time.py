"""Collect batches of 100 records, or of those that arrive within half a second; commit each.

Prints:
    batches of 100: 2
    the rest came by time: 50
    committed {0: 250}
"""

from __future__ import annotations

import time

from kohort import Consumer, ConsumerRecord
from tests.usage.around import Protocol, start, stored, topic_with, unique


def next_batch(consumer: Consumer, size: int, seconds: float) -> list[ConsumerRecord]:
    batch: list[ConsumerRecord] = []
    deadline = time.monotonic() + seconds
    while len(batch) < size and (left := deadline - time.monotonic()) > 0:
        polled = consumer.poll(timeout_ms=int(left * 1000), max_records=size - len(batch))
        for records in polled.values():
            batch += records
    return batch


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 250), unique("batches")
    sizes: list[int] = []
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        while not consumer.assignment():
            consumer.poll_membership(timeout_ms=100)
        while sum(sizes) < 250:
            if batch := next_batch(consumer, 100, 30.0 if len(sizes) < 2 else 0.5):
                sizes.append(len(batch))
                consumer.commit()
    print("batches of 100:", sizes[:2].count(100))
    print("the rest came by time:", sum(sizes[2:]))
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
