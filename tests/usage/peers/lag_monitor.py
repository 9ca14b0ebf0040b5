"""kafka-python's twin, with its `highwater` and end offsets."""

from __future__ import annotations

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

from tests.usage.around import start, stored, topic_with, unique


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 200), unique("behind")
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(50, "", -1)})
    print(
        "lag from outside:",
        consumer.end_offsets([partition])[partition] - stored(bootstrap, group)[0],
    )
    consumer.close()

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([partition])
    print("inside, before the first poll:", consumer.highwater(partition))
    read = 0
    while read < 40:
        polled = consumer.poll(timeout_ms=1_000, max_records=40 - read)
        read += sum(len(records) for records in polled.values())
    print(
        f"inside, after {read} records:",
        consumer.highwater(partition) - consumer.position(partition),
    )
    print("highwater:", consumer.highwater(partition))
    consumer.close()


if __name__ == "__main__":
    start(main)
