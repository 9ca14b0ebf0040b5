"""aiokafka's twin. It commits the sixth record, which was in progress when the task was cancelled.

Prints:
    done with 0 1 2 3 4
    cancelled
    committed {0: 6}
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer

from tests.usage.around import start, stored, topic_with, unique


async def consume(bootstrap: str) -> None:
    topic, group = topic_with(bootstrap, 300), unique("billing")
    done: list[str] = []
    at_sixth = asyncio.Event()

    async def work() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            async for record in consumer:
                if record.value == b"5":
                    at_sixth.set()
                    await asyncio.sleep(3_600)
                done.append(record.value.decode())
        finally:
            await consumer.stop()

    task = asyncio.create_task(work())
    await at_sixth.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print("done with", *done)
        print("cancelled")
    print("committed", stored(bootstrap, group))


def main(bootstrap: str) -> None:
    asyncio.run(consume(bootstrap))


if __name__ == "__main__":
    start(main)
