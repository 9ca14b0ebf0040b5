"""INFO lines of a group member, as read after an incident: joined, assigned, left.

Prints:
    joining is logged with the group: True
    the assignment is logged with its topic: True
    leaving is logged: True
    nothing at WARNING: True
"""

from __future__ import annotations

import logging

from kohort import Consumer
from tests.usage.around import Protocol, start, topic_with, unique

# Log texts on a machine that is too busy for the heartbeats of this test.
BUSY = "the event loop was blocked"


class Kept(logging.Handler):
    """Keeps log records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    kept = Kept()
    logging.getLogger("kohort").addHandler(kept)
    logging.getLogger("kohort").setLevel(logging.INFO)
    topic, group = topic_with(bootstrap, 10), unique("service")
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        while not consumer.poll(timeout_ms=1_000):
            pass
    lines = [each.getMessage() for each in kept.records]
    joined = any("join" in line.lower() and group in line for line in lines)
    print("joining is logged with the group:", joined)
    assigned = any("assigned" in line.lower() and topic in line for line in lines)
    print("the assignment is logged with its topic:", assigned)
    print("leaving is logged:", any("leav" in line.lower() or "left" in line for line in lines))
    warned = [each.getMessage() for each in kept.records if each.levelno >= logging.WARNING]
    print("nothing at WARNING:", all(BUSY in text for text in warned) or warned)


if __name__ == "__main__":
    start(main)
