"""Leave a `for` loop with `break` and continue with `poll`: no record may be missing.

The loop returned 1 of 300 records; `poll` must start with the second one, not with the next fetch.

Prints:
    iterated over 0
    polled 299, from 1 to 299
"""

from __future__ import annotations

from kohort import Consumer, ConsumerRecord
from tests.usage.around import Protocol, start, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    topic = topic_with(bootstrap, 300)
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=unique("billing"),
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        for record in consumer:
            print("iterated over", record.value.decode())
            break
        polled: list[ConsumerRecord] = []
        while not polled or polled[-1].offset < 299:
            for records in consumer.poll(timeout_ms=1_000).values():
                polled += records
    print(f"polled {len(polled)}, from {polled[0].offset} to {polled[-1].offset}")


if __name__ == "__main__":
    start(main)
