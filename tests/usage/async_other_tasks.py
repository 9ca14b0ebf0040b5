"""An asyncio service reads a backlog, while another of its tasks answers health checks.

With records ready, no poll waits, but the other task still runs between the polls.

Prints:
    poll: 3000 records, the health check ran: True
    async for: 3000 records, the health check ran: True
"""

from __future__ import annotations

import asyncio

from kohort import AsyncConsumer
from tests.usage.around import Protocol, start, topic_with, unique

RECORDS = 3000


async def read(topic: str, bootstrap: str, protocol: Protocol, *, in_a_loop: bool) -> None:
    checks, seen, while_reading = 0, 0, 0

    async def health() -> None:
        nonlocal checks
        while True:
            checks += 1
            await asyncio.sleep(0)

    async with AsyncConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=unique("checked"),
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        await anext(consumer)  # nearly all the others are fetched now
        task = asyncio.create_task(health())
        await asyncio.sleep(0)
        before, seen = checks, 1
        if in_a_loop:
            async for _ in consumer:
                seen += 1
                sum(range(1_000))  # its work, in this thread
                if seen == RECORDS:
                    break
        else:
            while seen < RECORDS:
                for records in (await consumer.poll(max_records=10)).values():
                    seen += len(records)
        while_reading = checks - before
        task.cancel()
    name = "async for" if in_a_loop else "poll"
    print(f"{name}: {seen} records, the health check ran:", while_reading > 0)


async def read_twice(bootstrap: str, protocol: Protocol) -> None:
    topic = topic_with(bootstrap, RECORDS)
    await read(topic, bootstrap, protocol, in_a_loop=False)
    await read(topic, bootstrap, protocol, in_a_loop=True)


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    asyncio.run(read_twice(bootstrap, protocol))


if __name__ == "__main__":
    start(main)
