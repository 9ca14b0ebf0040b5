"""confluent-kafka's twin."""

from __future__ import annotations

import confluent_kafka as confluent

from tests.usage.around import start, stored, topic_with, unique


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 100), unique("billing")
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
        }
    )
    consumer.subscribe([topic])
    handed_out = 0
    while handed_out < 100:
        message = consumer.poll(1.0)
        if message is None:
            continue
        handed_out += 1
        if (message.offset() or 0) < 40:
            consumer.store_offsets(message)
    consumer.close()
    print(f"handed out {handed_out}, done with 40")
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
