"""aiokafka's twin."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer

from tests.usage.around import start, stored, topic_with, unique


async def consume(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    async for record in consumer:
        print("processed", record.value.decode())
        await consumer.commit()
        break
    print("committed", stored(bootstrap, group))
    records = [
        each for some in (await consumer.getmany(timeout_ms=5_000)).values() for each in some
    ]
    print("the next poll begins with", records[0].offset if records else "nothing")
    await consumer.stop()


def main(bootstrap: str) -> None:
    asyncio.run(consume(bootstrap))


if __name__ == "__main__":
    start(main)
