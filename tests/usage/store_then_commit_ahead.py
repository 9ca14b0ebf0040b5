"""Auto-commit of stored offsets, and an explicit commit that is ahead of them.

A service that skips some records commits past them. Auto-commit does not undo that, neither in the
background nor at `close`; offsets stored later count again.

Prints:
    stored 20, then committed 77
    committed behind several rounds of auto-commit {0: 77}
    committed after close {0: 77}
    stored 80 after a commit of 90, then closed {0: 80}
"""

from __future__ import annotations

import time

from kohort import Consumer, TopicPartition
from tests.usage.around import Protocol, start, stored, topic_with, unique, until


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 100), unique("billing")
    place = TopicPartition(topic, 0)

    def member() -> Consumer:
        return Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
            enable_auto_offset_store=False,
        )

    with member() as consumer:
        until(lambda: not consumer.poll(100) and bool(consumer.assignment()), "all is read")
        consumer.store_offsets({place: 20})
        until(lambda: stored(bootstrap, group) == {0: 20}, "20 is committed")
        consumer.commit({place: 77})
        print("stored 20, then committed 77")
        end = time.monotonic() + 1
        while time.monotonic() < end:
            consumer.poll(50)
        print("committed behind several rounds of auto-commit", stored(bootstrap, group))
    print("committed after close", stored(bootstrap, group))
    with member() as consumer:
        until(lambda: not consumer.poll(100) and bool(consumer.assignment()), "the rest is read")
        consumer.commit({place: 90})
        consumer.store_offsets({place: 80})
    print("stored 80 after a commit of 90, then closed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
