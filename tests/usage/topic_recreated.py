"""A topic is deleted and recreated while a consumer reads it.

All records of the new topic are read, from the first one on; offsets committed for the old topic do
not apply to the new one.

Prints:
    read 10 of the old topic
    read 7 of the new topic
"""

from __future__ import annotations

from kohort import Consumer
from tests.usage.around import Protocol, admin, start, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic = topic_with(bootstrap, 10)
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=unique("billing"),
        group_protocol=protocol,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        allow_auto_create_topics=False,
        metadata_max_age_ms=500,
    ) as consumer:
        old = 0
        while old < 10:
            old += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print("read", old, "of the old topic")
        client = admin(bootstrap)
        client.delete_topics([topic])[topic].result(30)
        consumer.poll(timeout_ms=2_000)
        topic_with(bootstrap, 7, name=topic)
        new = 0
        while new < 7:
            new += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print("read", new, "of the new topic")


if __name__ == "__main__":
    start(main)
