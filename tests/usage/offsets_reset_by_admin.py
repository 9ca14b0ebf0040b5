"""The group is down; an administrator sets it back by 30 records; then they are read again.

While the group is running, this is refused with the reason.

Prints:
    refused while it runs: True
    stored {0: 100}, set to {0: 70}
    read again: 30, from 70
"""

from __future__ import annotations

from kohort import AdminClient, Consumer, KafkaError, TopicPartition
from kohort.client import ConsumerSettings
from tests.usage.around import Protocol, start, stored, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 100), unique("replayed")
    partition = TopicPartition(topic, 0)
    settings: ConsumerSettings = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    }
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        read = 0
        with Consumer(topic, **settings) as consumer:
            while read < 100:
                read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
            consumer.commit()
            try:
                admin.alter_group_offsets({partition: 70}, group)
            except KafkaError as error:
                said = error.name in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP") and group in str(
                    error
                )
                print("refused while it runs:", said)
        before = stored(bootstrap, group)
        admin.alter_group_offsets({partition: 70}, group)
        print(f"stored {before}, set to {stored(bootstrap, group)}")
    with Consumer(topic, **settings) as consumer:
        while not (polled := consumer.poll(timeout_ms=1_000)):
            pass
        records = polled[partition]
        print(f"read again: {len(records)}, from {records[0].offset}")


if __name__ == "__main__":
    start(main)
