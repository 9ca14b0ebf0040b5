"""kafka-python's twin. `close` commits all records of the last poll, 50 of them unprocessed.

Prints:
    failed at 150
    committed {0: 200}
"""

from __future__ import annotations

from contextlib import closing

from kafka import KafkaConsumer

from tests.usage.around import start, stored, topic_with, unique


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    try:
        with closing(
            KafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                max_poll_records=100,
            )
        ) as consumer:
            while True:
                for records in consumer.poll(timeout_ms=1_000).values():
                    for record in records:
                        if record.value == b"150":
                            raise RuntimeError("failed at 150")
    except RuntimeError as error:
        print(error)
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
