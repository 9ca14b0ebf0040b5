"""kafka-python's twin. It also commits the bad record: its position is past the yielded record.

Prints:
    processed 0 1 2
    failed: cannot process 3
    committed {0: 4}
"""

from __future__ import annotations

from kafka import KafkaConsumer

from tests.usage.around import start, stored, topic_with, unique


def process(value: bytes) -> None:
    if value == b"3":
        raise ValueError("cannot process 3")


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    processed: list[str] = []
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    try:
        for record in consumer:
            process(record.value)
            processed.append(record.value.decode())
    except ValueError as error:
        print("processed", *processed)
        print("failed:", error)
    finally:
        consumer.close()
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
