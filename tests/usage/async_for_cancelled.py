"""A web service cancels its consumer task in the middle of a record, as on every shutdown.

With auto-commit, the records that the loop had processed are committed: 5 of 300. The sixth, whose
processing was cancelled, is read again after the restart.

Prints:
    done with 0 1 2 3 4
    cancelled
    committed {0: 5}
"""

from __future__ import annotations

import asyncio

from kohort import AsyncConsumer
from tests.usage.around import Protocol, start, stored, topic_with, unique


async def consume(bootstrap: str, protocol: Protocol) -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    done: list[str] = []
    at_sixth = asyncio.Event()

    async def work() -> None:
        async with AsyncConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            async for record in consumer:
                if record.value == b"5":
                    at_sixth.set()
                    await asyncio.sleep(3_600)
                done.append(record.value.decode())

    task = asyncio.create_task(work())
    await at_sixth.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print("done with", *done)
        print("cancelled")
    print("committed", stored(bootstrap, group))


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    asyncio.run(consume(bootstrap, protocol))


if __name__ == "__main__":
    start(main)
