"""Foreign producers append, with every codec and idempotently where that is their default."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from kohort.broker import EmbeddedBroker
from kohort.types import TopicPartition
from kohort.wire.records import iter_batches
from tests.broker.peer import Peer
from tests.system.clients.group import DEADLINE_S, kafka

# aiokafka leaves connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [b"value %d " % number * 20 for number in range(500)]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def by_confluent(servers: str, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True}
    )
    for value in VALUES:
        producer.produce(topic, value, headers={"codec": codec})
    assert producer.flush(DEADLINE_S) == 0


def by_kafka_python(servers: str, topic: str, codec: str) -> None:
    compression = None if codec == "none" else codec
    producer = kafka.KafkaProducer(bootstrap_servers=servers, compression_type=compression)
    try:
        sent = [producer.send(topic, v, headers=[("codec", codec.encode())]) for v in VALUES]
        for future in sent:
            future.get(DEADLINE_S)
    finally:
        producer.close()


def by_aiokafka(servers: str, topic: str, codec: str) -> None:
    async def run() -> None:
        compression = None if codec == "none" else codec
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, compression_type=compression, enable_idempotence=True
        )
        await producer.start()
        try:
            headers = [("codec", codec.encode())]
            sent = [await producer.send(topic, value, headers=headers) for value in VALUES]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    asyncio.run(run())


def read_all(servers: str, topic: str) -> list[tuple[Any, Any]]:
    """What librdkafka reads of a topic with one partition, checking CRCs."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "check.crcs": True}
    )
    try:
        start = confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)
        reader.assign([start])
        found: list[tuple[Any, Any]] = []
        while len(found) < len(VALUES):
            messages = reader.consume(len(VALUES) - len(found), DEADLINE_S)
            assert messages, "nothing more within the time"
            assert not [m.error() for m in messages if m.error()]
            found += [(m.value(), m.headers()) for m in messages]
        assert reader.get_watermark_offsets(start) == (0, len(VALUES))
        return found
    finally:
        reader.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("produce", [by_confluent, by_kafka_python, by_aiokafka])
def test_what_was_produced_is_read(
    produce: Callable[[str, str, str], None], codec: str, broker: EmbeddedBroker
) -> None:
    topic = f"{produce.__name__}-{codec}"
    produce(broker.bootstrap_servers, topic, codec)
    headers = [("codec", codec.encode())]
    assert read_all(broker.bootstrap_servers, topic) == [(value, headers) for value in VALUES]


def test_offsets_are_found_by_time(broker: EmbeddedBroker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(100):
        producer.produce("times", b"x", timestamp=1_000 + 10 * number)
    assert producer.flush(DEADLINE_S) == 0
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    try:
        partition = kafka.TopicPartition("times", 0)
        found = consumer.offsets_for_times({partition: 1_495})
        assert (found[partition].offset, found[partition].timestamp) == (50, 1_500)
        assert consumer.offsets_for_times({partition: 9_999_999_999_999}) == {partition: None}
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 100}
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS[1:])
def test_librdkafka_compresses_what_it_sends(codec: str, broker: EmbeddedBroker) -> None:
    topic = f"compressed-{codec}"
    by_confluent(broker.bootstrap_servers, topic, codec)
    with Peer(broker.bootstrap_servers) as peer:
        records = peer.fetch(TopicPartition(topic, 0), 0).records or b""
    assert {batch.compression.name.lower() for batch, _ in iter_batches(records)} == {codec}
