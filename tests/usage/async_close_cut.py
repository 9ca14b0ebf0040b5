"""A consumer's close runs out of time and is retried: the member leaves, its offsets are stored.

Prints:
    close was cut off
    closed
    members left: 0
    stored: {0: 10}
"""

from __future__ import annotations

import asyncio

from kohort import AsyncConsumer
from kohort.client import AsyncAdminClient
from tests.usage.around import Protocol, start, stored, topic_with, unique


async def run(bootstrap: str, protocol: Protocol) -> None:
    topic, group = topic_with(bootstrap, 10), unique("hurried")
    consumer = AsyncConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
    )
    read = 0
    while read < 10:
        read += sum(len(records) for records in (await consumer.poll(timeout_ms=1_000)).values())
    try:
        await asyncio.wait_for(consumer.close(), 0.000_1)
    except TimeoutError:
        print("close was cut off")
    await consumer.close()
    print("closed")
    async with AsyncAdminClient(bootstrap_servers=bootstrap) as admin:
        print("members left:", len((await admin.describe_groups([group]))[group].members))
    print("stored:", stored(bootstrap, group))


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    asyncio.run(run(bootstrap, protocol))


if __name__ == "__main__":
    start(main)
