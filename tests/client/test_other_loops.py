"""Event loops other than asyncio's, and clients used on a second loop."""

from __future__ import annotations

import asyncio
import gc
import uuid
from pathlib import Path

import pytest
import uvloop

from kohort import AsyncConsumer, AsyncProducer, LocalProtocolError
from kohort.broker import EmbeddedBroker

LONG_S = 60


async def consumed(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Write this many records and read them in a group."""
    async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
        sent = [await producer.send(topic, b"%d" % number) for number in range(count)]
        await asyncio.gather(*sent)
    found: list[bytes | None] = []
    consumer = AsyncConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
    )
    async with consumer, asyncio.timeout(LONG_S):
        while len(found) < count:
            batches = await consumer.poll(1000)
            found += [record.value for batch in batches.values() for record in batch]
    return found


def test_broker_and_clients_run_on_uvloop(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as broker:
            broker.create_topic("t", 1)
            found = await consumed(broker.bootstrap_servers, "t", 100)
        assert found == [b"%d" % number for number in range(100)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_consumer_of_a_loop_that_has_ended_says_so(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 1)
        consumer = AsyncConsumer(
            "t", bootstrap_servers=broker.bootstrap_servers, group_id=uuid.uuid4().hex
        )
        asyncio.run(polled(consumer))
        for _ in range(2):
            with pytest.raises(LocalProtocolError, match="belongs to the event loop"):
                asyncio.run(consumer.close())
        del consumer
        gc.collect()


async def polled(consumer: AsyncConsumer) -> None:
    """Use a consumer for the first time, on a loop that then ends."""
    await consumer.poll(100)
