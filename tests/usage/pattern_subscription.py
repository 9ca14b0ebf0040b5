"""Subscribe to a pattern; a matching topic that is created later is read as well, others are not.

Prints:
    read 10 of 2 topics
    read 5 of the new one
    subscription: a, b, c
"""

from __future__ import annotations

from kohort import Consumer
from tests.usage.around import Protocol, start, topic_with, unique


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    stem = unique("plant")
    for name in ("a", "b"):
        topic_with(bootstrap, 5, name=f"{stem}.{name}")
    topic_with(bootstrap, 5, name=f"other-{stem}.x")
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=unique("pattern"),
        group_protocol=protocol,
        auto_offset_reset="earliest",
        metadata_max_age_ms=1_000,
    ) as consumer:
        consumer.subscribe(pattern=f"{stem}\\..*")
        seen: list[str] = []

        def read_until(count: int) -> list[str]:
            while len(seen) < count:
                for partition, records in consumer.poll(timeout_ms=1_000).items():
                    seen.extend(partition.topic for _ in records)
            return seen

        print(f"read {len(read_until(10))} of {len({*seen})} topics")
        topic_with(bootstrap, 5, name=f"{stem}.c")
        read_until(15)
        print("read", seen.count(f"{stem}.c"), "of the new one")
        topics = sorted({each.topic for each in consumer.assignment()})
        print("subscription:", ", ".join(name.removeprefix(f"{stem}.") for name in topics))


if __name__ == "__main__":
    start(main)
