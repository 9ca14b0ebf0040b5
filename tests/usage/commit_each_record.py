"""Manual commit of every record in a poll loop: the safest and slowest way.

Prints:
    processed 10 records of 2 partitions
    committed {0: 5, 1: 5}
"""

from __future__ import annotations

from kohort import Consumer, OffsetAndMetadata
from tests.usage.around import Protocol, start, stored, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 10, partitions=2), unique("billing")
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        processed = 0
        while processed < 10:
            for partition, records in consumer.poll(timeout_ms=1_000).items():
                for record in records:
                    processed += 1
                    consumer.commit({partition: OffsetAndMetadata(record.offset + 1, "done")})
    print("processed", processed, "records of 2 partitions")
    print("committed", dict(sorted(stored(bootstrap, group).items())))


if __name__ == "__main__":
    start(main)
