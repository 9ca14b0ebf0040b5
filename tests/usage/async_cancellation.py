"""Timeouts and cancelled tasks around every call: the clients continue afterwards, nothing is lost.

Prints:
    poll was cancelled 20 times
    sends given up: 20
    read 120 records, each once: True
"""

from __future__ import annotations

import asyncio

from kohort import AsyncConsumer, AsyncProducer
from tests.usage.around import Protocol, start, topic_with, unique


async def run(bootstrap: str, protocol: Protocol) -> None:
    topic = topic_with(bootstrap)
    cancelled = given_up = 0
    read: list[bytes] = []
    async with (
        AsyncProducer(bootstrap_servers=bootstrap, linger_ms=20) as producer,
        AsyncConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=unique("cancelled"),
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        for number in range(20):
            try:
                async with asyncio.timeout(0.01 * (number % 5)):
                    while True:
                        for records in (await consumer.poll(timeout_ms=60_000)).values():
                            read += [record.value for record in records]
            except TimeoutError:
                cancelled += 1
        print("poll was cancelled", cancelled, "times")
        for number in range(120):
            delivery = await producer.send(topic, str(number).encode())
            if number % 6 == 0:
                delivery.cancel()
                given_up += 1
        print("sends given up:", given_up)
        await producer.flush()
        while len(read) < 120:
            for records in (await consumer.poll(timeout_ms=1_000)).values():
                read += [record.value for record in records]
    print(f"read {len(read)} records, each once:", len({*read}) == len(read))


def main(bootstrap: str, protocol: Protocol = "classic") -> None:
    asyncio.run(run(bootstrap, protocol))


if __name__ == "__main__":
    start(main)
