"""A topic gets more partitions while a consumer runs: their records are read from the first one on.

Prints:
    read 10 of 1 partition
    read 40 of 4 partitions
"""

from __future__ import annotations

from kohort import AdminClient, Consumer
from tests.usage.around import Protocol, start, topic_with, unique, write


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic = topic_with(bootstrap, 10)
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=unique("growing"),
        group_protocol=protocol,
        auto_offset_reset="earliest",
        metadata_max_age_ms=1_000,
    ) as consumer:
        read = 0
        while read < 10:
            read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print(f"read {read} of {len(consumer.assignment())} partition")
        with AdminClient(bootstrap_servers=bootstrap) as admin:
            admin.create_partitions({topic: 4})
        write(bootstrap, topic, [str(number) for number in range(40)], partitions=4)
        read = 0
        while read < 40:
            read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print(f"read {read} of {len(consumer.assignment())} partitions")


if __name__ == "__main__":
    start(main)
