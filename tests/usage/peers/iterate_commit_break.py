"""kafka-python's twin."""

from __future__ import annotations

from kafka import KafkaConsumer

from tests.usage.around import start, stored, topic_with, unique


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    settings = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }

    consumer = KafkaConsumer(topic, **settings)
    for record in consumer:
        print("processed", record.value.decode())
        consumer.commit()
        break
    consumer.close()
    print("committed", stored(bootstrap, group))

    consumer = KafkaConsumer(topic, **settings)
    print("next run begins with", next(consumer).value.decode())
    consumer.close()


if __name__ == "__main__":
    start(main)
