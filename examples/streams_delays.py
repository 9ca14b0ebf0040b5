"""Delays per aircraft, summed by two instances over an embedded broker; the first one goes.

The state of each aircraft moves with its task, so the sums go on where they were. Runs by itself:

    python examples/streams_delays.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from kohort import AsyncConsumer, AsyncProducer, EmbeddedBroker
from kohort.streams import App

AIRCRAFT, FLIGHTS, DELAY = 20, 1_000, 5


def build() -> App:
    app = App("delays")
    flights = app.topic("flights", key=str, value=int)
    flights.reduce(lambda total, delay: total + delay, name="total").to("totals")
    return app


async def produce(address: str) -> None:
    async with AsyncProducer(bootstrap_servers=address) as producer:
        for number in range(FLIGHTS):
            key = b"D-%03d" % (number % AIRCRAFT)
            await producer.send("flights", DELAY.to_bytes(8, "big"), key=key)


async def until(consumer: AsyncConsumer, found: dict[bytes, int], wanted: int) -> int:
    """Read totals until all aircraft together have the wanted delay."""
    while sum(found.values()) < wanted:
        for records in (await consumer.poll(1_000)).values():
            found |= {each.key: int.from_bytes(each.value, "big") for each in records}
    return sum(found.values())


async def run(address: str, folder: Path) -> None:
    totals: dict[bytes, int] = {}
    consumer = AsyncConsumer(
        bootstrap_servers=address, group_id="reader", auto_offset_reset="earliest"
    )
    consumer.subscribe(["totals"])
    first = build().instance(bootstrap_servers=address, state_dir=folder / "first")
    second = build().instance(bootstrap_servers=address, state_dir=folder / "second")
    async with consumer, asyncio.TaskGroup() as group:
        running = group.create_task(first.run())
        await produce(address)
        print("one instance:", await until(consumer, totals, FLIGHTS * DELAY))
        group.create_task(second.run())
        await produce(address)
        first.leave_soon()  # its tasks move once the second instance has learned them
        await running
        await produce(address)
        print("after the move:", await until(consumer, totals, 3 * FLIGHTS * DELAY))
        print("asked for D-007:", second.query("total", "D-007"))
        second.stop()


def main() -> None:
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as folder:
        for topic in ("flights", "totals"):
            broker.create_topic(topic, 4)
        asyncio.run(run(broker.bootstrap_servers, Path(folder)))


if __name__ == "__main__":
    main()
