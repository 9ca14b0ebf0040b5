"""An exception leaves a poll loop inside `with`: the batch in progress is not committed.

The first poll returned 100 records, which were processed. The second returned 100 more; at the 51st
of them the program failed. Auto-commit covers only the first poll.

Prints:
    failed at 150
    committed {0: 100}
"""

from __future__ import annotations

from kohort import Consumer
from tests.usage.around import Protocol, start, stored, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    try:
        with Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            max_poll_records=100,
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
