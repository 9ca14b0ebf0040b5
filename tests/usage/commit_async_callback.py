"""Commit without waiting, and get the outcome in a callback.

Prints:
    read 50
    stored 50, error: None
    committed {0: 50}
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort import Consumer, KohortError, OffsetAndMetadata, TopicPartition
from tests.usage.around import Protocol, start, stored, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 50), unique("billing")
    told: list[str] = []

    def on_commit(
        offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KohortError | None
    ) -> None:
        told.extend(f"stored {each.offset}, error: {error}" for each in offsets.values())

    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        read = 0
        while read < 50:
            read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print("read", read)
        consumer.commit_async(on_commit=on_commit)
        while not told:
            consumer.poll(timeout_ms=100)
    print(*told)
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
