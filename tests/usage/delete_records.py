"""Delete records before offset 60, for privacy; a consumer at 10 must not read or wait there.

Prints:
    first offset left: 60
    the group that was at 10 reads 60 to 99
"""

from __future__ import annotations

from kohort import AdminClient, Consumer, TopicPartition
from tests.usage.around import Protocol, start, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 100), unique("behind")
    partition = TopicPartition(topic, 0)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets({partition: 10}, group)
        admin.delete_records({partition: 60})
        print("first offset left:", admin.list_offsets({partition: -2})[partition])
    offsets: list[int] = []
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        while len(offsets) < 40:
            for records in consumer.poll(timeout_ms=1_000).values():
                offsets += [record.offset for record in records]
    print(f"the group that was at 10 reads {offsets[0]} to {offsets[-1]}")


if __name__ == "__main__":
    start(main)
