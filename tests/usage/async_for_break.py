"""`async for`, commit, break: one of 300 records is committed.

Prints:
    processed 0
    committed {0: 1}
    the next poll begins with 1
"""

from __future__ import annotations

import asyncio

from kohort import AsyncConsumer
from tests.usage.around import Protocol, start, stored, topic_with, unique


async def consume(bootstrap: str, protocol: Protocol) -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    async with AsyncConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        async for record in consumer:
            print("processed", record.value.decode())
            await consumer.commit()
            break
        print("committed", stored(bootstrap, group))
        records = [each for some in (await consumer.poll(5_000)).values() for each in some]
        print("the next poll begins with", records[0].offset if records else "nothing")


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    asyncio.run(consume(bootstrap, protocol))


if __name__ == "__main__":
    start(main)
