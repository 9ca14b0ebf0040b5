"""A compacted topic as a table: read it from the beginning into a dict; a null value deletes.

Prints:
    {'a': '4', 'c': '2'}
"""

from __future__ import annotations

from kohort import Consumer, Producer, TopicPartition
from tests.usage.around import start, topic_with


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, configs={"cleanup.policy": "compact"})
    with Producer(bootstrap_servers=bootstrap) as producer:
        for key, value in [("a", "1"), ("b", "9"), ("c", "2"), ("a", "4"), ("b", None)]:
            producer.send(topic, value.encode() if value else None, key=key.encode())

    table: dict[str, str] = {}
    partition = TopicPartition(topic, 0)
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        key_deserializer=bytes.decode,
        value_deserializer=bytes.decode,
    ) as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for records in consumer.poll(timeout_ms=1_000).values():
                for record in records:
                    if record.value is None:
                        table.pop(record.key, None)
                    else:
                        table[record.key] = record.value
    print(dict(sorted(table.items())))


if __name__ == "__main__":
    start(main)
