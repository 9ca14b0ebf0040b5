"""confluent-kafka's twin."""

from __future__ import annotations

import confluent_kafka as confluent

from tests.usage.around import admin, start, topic_with, unique


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, 10)
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("billing"),
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe([topic])
    print("read", read(consumer, 10), "of the old topic")
    client = admin(bootstrap)
    client.delete_topics([topic])[topic].result(30)
    consumer.poll(2)
    topic_with(bootstrap, 7, name=topic)
    print("read", read(consumer, 7), "of the new topic")
    consumer.close()


def read(consumer: confluent.Consumer, count: int) -> int:
    found = 0
    while found < count:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found += 1
    return found


if __name__ == "__main__":
    start(main)
