"""A consumer that can never work raises at every poll, not just once: here, without an offset.

With `auto_offset_reset="none"` a group without an offset is an error that the application has to
handle; `seek` fixes it.

Prints:
    5 polls raised OFFSET_OUT_OF_RANGE
    names the partition: True
    after seek: 10 records
"""

from __future__ import annotations

from kohort import Consumer, KafkaError, TopicPartition
from tests.usage.around import Protocol, start, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic = topic_with(bootstrap, 10)
    names: list[str] = []
    text = ""
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=unique("strict"),
        group_protocol=protocol,
        auto_offset_reset="none",
    ) as consumer:
        while len(names) < 5:
            try:
                consumer.poll(timeout_ms=500)
            except KafkaError as error:
                names.append(error.name)
                text = str(error)
        print(len(names), "polls raised", *{*names})
        print("names the partition:", f"{topic}-0" in text)
        consumer.seek(TopicPartition(topic, 0), 0)
        read = 0
        while read < 10:
            read += sum(len(records) for records in consumer.poll(timeout_ms=1_000).values())
        print("after seek:", read, "records")


if __name__ == "__main__":
    start(main)
