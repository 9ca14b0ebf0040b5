"""A loop with auto-commit meets a bad record and dies: the bad record must be read again.

Three records were processed, the fourth raised. `close` commits the processed ones, so the next run
starts with the fourth.

Prints:
    processed 0 1 2
    failed: cannot process 3
    committed {0: 3}
"""

from __future__ import annotations

from kohort import Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique


def process(value: bytes) -> None:
    if value == b"3":
        raise ValueError("cannot process 3")


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    processed: list[str] = []

    def work() -> None:
        consumer = Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
        )
        try:
            for record in consumer:
                process(record.value)
                processed.append(record.value.decode())
        finally:
            consumer.close()

    try:
        work()
    except ValueError as error:
        print("processed", *processed)
        print("failed:", error)
    print("committed", stored(bootstrap, group))


if __name__ == "__main__":
    start(main)
