"""kafka-python's way to stop at the end: a `for` loop that ends after a second without records.

Prints:
    read 150
    and, after more was written, 10
    committed {0: 160}
"""

from __future__ import annotations

from kohort import Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique, write


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 150), unique("drain")
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        consumer_timeout_ms=3_000,
    ) as consumer:
        print("read", sum(1 for _ in consumer))
        write(bootstrap, topic, ["more"] * 10)
        print("and, after more was written,", sum(1 for _ in consumer))
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
