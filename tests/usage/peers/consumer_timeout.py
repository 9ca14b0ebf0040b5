"""kafka-python's twin."""

from __future__ import annotations

from kafka import KafkaConsumer

from tests.usage.around import start, stored, topic_with, unique, write


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 150), unique("drain")
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=3_000,
    )
    print("read", sum(1 for _ in consumer))
    write(bootstrap, topic, ["more"] * 10)
    print("and, after more was written,", sum(1 for _ in consumer))
    consumer.close()
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
