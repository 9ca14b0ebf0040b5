"""A pipeline in one TaskGroup: read, transform, write, and commit what was acknowledged.

Prints:
    written 200, different 200
    committed {0: 100, 1: 100}
"""

from __future__ import annotations

import asyncio

from kohort import AsyncConsumer, AsyncProducer, OffsetAndMetadata, TopicPartition
from tests.usage.around import Protocol, start, stored, topic_with, unique, values_in


async def pipeline(
    bootstrap: str, source: str, target: str, group: str, protocol: Protocol
) -> None:
    queue: asyncio.Queue[tuple[TopicPartition, int, bytes] | None] = asyncio.Queue(50)
    async with (
        AsyncConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        AsyncProducer(bootstrap_servers=bootstrap) as producer,
    ):

        async def read() -> None:
            count = 0
            while count < 200:
                for partition, records in (await consumer.poll(timeout_ms=1_000)).items():
                    count += len(records)
                    for record in records:
                        await queue.put((partition, record.offset, record.value))
            await queue.put(None)

        async def write() -> None:
            while (item := await queue.get()) is not None:
                partition, offset, value = item
                await (await producer.send(target, b"order " + value, key=value))
                await consumer.commit({partition: OffsetAndMetadata(offset + 1)})

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read())
            tasks.create_task(write())


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    source, target = topic_with(bootstrap, 200, partitions=2), topic_with(bootstrap, partitions=2)
    group = unique("pipeline")
    asyncio.run(pipeline(bootstrap, source, target, group, protocol))
    written = values_in(bootstrap, target)
    print(f"written {len(written)}, different {len({*written})}")
    print("committed", dict(sorted(stored(bootstrap, group).items())))


if __name__ == "__main__":
    start(main)
