"""A poll loop that ends normally inside `with`: all records of the last poll count as processed.

Prints:
    processed 300
    committed {0: 300}
"""

from __future__ import annotations

from kohort import Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    processed = 0
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        max_poll_records=100,
    ) as consumer:
        while processed < 300:
            for records in consumer.poll(timeout_ms=1_000).values():
                processed += len(records)
    print("processed", processed)
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
