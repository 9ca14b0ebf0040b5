"""confluent-kafka's way of at-least-once: auto-commit, but only of explicitly stored offsets.

With `enable_auto_offset_store=False` the client commits, in the background and at `close`, only the
offsets given to `store_offsets`, not those of all returned records.

Prints:
    handed out 100, done with 40
    committed {0: 40}
"""

from __future__ import annotations

from kohort import Consumer, TopicPartition
from tests.usage.around import Protocol, start, stored, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 100), unique("billing")
    handed_out = 0
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_offset_store=False,
    ) as consumer:
        while handed_out < 100:
            for records in consumer.poll(timeout_ms=1_000).values():
                handed_out += len(records)
                for record in records:
                    if record.offset < 40:
                        partition = TopicPartition(record.topic, record.partition)
                        consumer.store_offsets({partition: record.offset + 1})
    print(f"handed out {handed_out}, done with 40")
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
