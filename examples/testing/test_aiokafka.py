"""A service written with aiokafka, tested with the fixtures of kohort.

pip install "kohort[broker]" aiokafka pytest
pytest examples/testing/test_aiokafka.py
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

if TYPE_CHECKING:
    from kohort.testing import KafkaHarness


async def shout(servers: str, source: str, target: str, group: str, count: int) -> None:
    """Copy records in upper case; commit those that are written."""
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    async with producer, consumer:
        async for record in consumer:
            await producer.send_and_wait(target, record.value.upper())
            await consumer.commit()
            count -= 1
            if not count:
                return


def test_an_answer_that_is_lost_doubles_nothing(
    kohort_broker: KafkaHarness, kohort_topic: str, kohort_group: str
) -> None:
    kohort_broker.produce(kohort_topic, b"one", b"two", b"three")
    target = kohort_broker.create_topic()
    with kohort_broker.fault("disconnect", api="Produce", topic=target, effect=True, nth=2) as lost:
        asyncio.run(shout(kohort_broker.bootstrap_servers, kohort_topic, target, kohort_group, 3))
    assert lost.hits == 1
    assert [record.value for record in kohort_broker.records(target)] == [b"ONE", b"TWO", b"THREE"]
    assert sum(kohort_broker.committed(kohort_group).values()) == 3
    kohort_broker.delete_topic(target)
