"""Take one record, commit, stop: the next run must continue with the second record.

The first program of every tutorial: `for`, `commit()`, `break`. One of 300 records was processed,
so one is committed, however many the client has prefetched.

Prints:
    processed 0
    committed {0: 1}
    next run begins with 1
"""

from __future__ import annotations

from kohort import Consumer
from kohort.client import ConsumerSettings
from tests.usage.around import Protocol, start, stored, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    settings: ConsumerSettings = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }

    with Consumer(topic, **settings) as consumer:
        for record in consumer:
            print("processed", record.value.decode())
            consumer.commit()
            break
    print("committed", stored(bootstrap, group))

    with Consumer(topic, **settings) as consumer:
        print("next run begins with", next(iter(consumer)).value.decode())


if __name__ == "__main__":
    start(main)
