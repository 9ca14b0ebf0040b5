"""Workers that check a topic briefly and close again, many times, in two processes.

Each may close while the coordinator is still answering its first request to join. It must not
remain a member: the next consumer would wait for its session to expire, which takes five minutes
here.

Prints:
    workers ended with [0, 0]
    a consumer of the same group read 10 of 10
"""

from __future__ import annotations

import multiprocessing

from kohort import Consumer
from tests.usage.around import PATIENCE_S, start, topic_with, unique, until

ROUNDS = 25


def main(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 10), unique("short")
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=look, args=(bootstrap, topic, group)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    print("workers ended with", [worker.exitcode for worker in workers])
    seen: set[bytes | None] = set()
    with consumer(bootstrap, topic, group) as last:

        def has_all() -> bool:
            for records in last.poll(timeout_ms=500).values():
                seen.update(record.value for record in records)
            return len(seen) == 10

        until(has_all, "the last consumer reads what is there")
    print(f"a consumer of the same group read {len(seen)} of 10")


def look(bootstrap: str, topic: str, group: str) -> None:
    """Poll for a few milliseconds, a little longer each time, with a new consumer."""
    for number in range(ROUNDS):
        with consumer(bootstrap, topic, group) as short:
            short.poll(timeout_ms=1 + 2 * number)


def consumer(bootstrap: str, topic: str, group: str) -> Consumer:
    """A consumer of a classic group that commits no offsets."""
    return Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol="classic",
        session_timeout_ms=300_000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


if __name__ == "__main__":
    start(main)
