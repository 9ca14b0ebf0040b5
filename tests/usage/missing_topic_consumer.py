"""A consumer is started before its topic exists: it logs this, and reads once the topic exists.

Prints:
    polled {}
    warned, with the topic's name: True
    read 5
"""

from __future__ import annotations

import logging

from kohort import Consumer
from tests.usage.around import Protocol, start, topic_with, unique


class Kept(logging.Handler):
    """Keeps log records."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    kept = Kept()
    logging.getLogger("kohort").addHandler(kept)
    topic = unique("not-there-yet")
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=unique("early"),
        group_protocol=protocol,
        auto_offset_reset="earliest",
        metadata_max_age_ms=1_000,
    ) as consumer:
        print("polled", consumer.poll(timeout_ms=3_000))
        print("warned, with the topic's name:", any(topic in line for line in kept.lines))
        topic_with(bootstrap, 5, name=topic)
        read = 0
        while read < 5:
            read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print("read", read)


if __name__ == "__main__":
    start(main)
