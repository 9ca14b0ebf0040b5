"""One consumer on a real Kafka: records, columns, positions, commits."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from kohort.client import AsyncConsumer, ConsumerRecord
from kohort.client.consumer.commits.offsets import OffsetAndTimestamp
from kohort.errors import ConfigError, KafkaError, LocalProtocolError
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign
from tests.real_kafka.broker import RealKafka


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def consumer(kafka: RealKafka, **settings: object) -> AsyncConsumer:
    defaults: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "auto_offset_reset": "earliest",
    }
    return AsyncConsumer(**(defaults | settings))


async def read(client: AsyncConsumer, count: int) -> list[ConsumerRecord]:
    """Poll until `count` records came."""
    records: list[ConsumerRecord] = []
    while len(records) < count:
        for polled in (await client.poll(1_000)).values():
            records += polled
    return records


async def read_columns(client: AsyncConsumer, count: int) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in batches) < count:
        batches.append(await client.poll_arrow(1_000))
    return pa.Table.from_batches(batches)


@on_a_loop
async def test_a_record_has_all_that_its_producer_gave(real_kafka: RealKafka) -> None:
    topic = foreign.new_topic(real_kafka.bootstrap_servers)
    producer = Producer({"bootstrap.servers": real_kafka.bootstrap_servers})
    producer.produce(topic, b"v", b"k", 0, headers=[("h", b"1"), ("h", None)], timestamp=12345)
    producer.produce(topic, None, None, 0, timestamp=12346)
    assert producer.flush(30) == 0
    async with consumer(real_kafka) as client:
        client.assign([TopicPartition(topic, 0)])
        first, second = await read(client, 2)
    assert first[:7] == (topic, 0, 0, 12345, 0, b"k", b"v")
    assert list(first.headers) == [("h", b"1"), ("h", None)]
    assert second[:7] == (topic, 0, 1, 12346, 0, None, None)


@on_a_loop
async def test_every_record_comes_once_and_in_order(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap, partitions=2)
    for partition in range(2):
        foreign.produce(bootstrap, topic, numbers(0, 3_000), partition)
    async with consumer(real_kafka, max_partition_fetch_bytes=4096) as client:
        client.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        records = await read(client, 6_000)
    for partition in range(2):
        mine = [record for record in records if record.partition == partition]
        assert [record.offset for record in mine] == list(range(3_000))
        assert [record.value for record in mine] == numbers(0, 3_000)


@on_a_loop
async def test_columns_and_records_take_turns_without_a_gap(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, numbers(0, 1_000))
    offsets: list[int] = []
    async with consumer(real_kafka) as client:
        client.assign([TopicPartition(topic, 0)])
        while len(offsets) < 1_000:
            batch = await client.poll_arrow(1_000, max_records=70)
            assert batch.num_rows <= 70
            offsets += batch.column("offset").to_pylist()
            for polled in (await client.poll(1_000 if batch.num_rows == 0 else 0, 30)).values():
                offsets += [record.offset for record in polled]
        assert await client.position(TopicPartition(topic, 0)) == 1_000
    assert offsets == list(range(1_000))


@on_a_loop
async def test_columns_are_those_of_spark(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, numbers(0, 10))
    async with consumer(real_kafka) as client:
        client.assign([TopicPartition(topic, 0)])
        table = await read_columns(client, 10)
    assert table.column_names[:7] == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    ]
    assert table["value"].to_pylist() == numbers(0, 10)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@on_a_loop
async def test_every_codec_is_read(real_kafka: RealKafka, codec: str) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap, compression_type=codec)
    foreign.produce(bootstrap, topic, numbers(0, 500))
    async with consumer(real_kafka) as client:
        client.assign([TopicPartition(topic, 0)])
        assert [record.value for record in await read(client, 500)] == numbers(0, 500)
        client.seek_to_beginning()
        assert (await read_columns(client, 500))["value"].to_pylist() == numbers(0, 500)


@on_a_loop
async def test_positions_follow_seeks(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, numbers(0, 100))
    where = TopicPartition(topic, 0)
    async with consumer(real_kafka, max_poll_records=10) as client:
        client.assign([where])
        assert await client.position(where) == 0
        assert len(await read(client, 10)) == 10
        assert await client.position(where) == 10
        client.seek(where, 95)
        assert [record.offset for record in await read(client, 5)] == list(range(95, 100))
        client.seek_to_beginning(where)
        assert (await read(client, 1))[0].offset == 0
        client.seek_to_end(where)
        assert await client.position(where) == 100
        assert await client.poll(50) == {}


@on_a_loop
async def test_latest_starts_at_the_end(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, numbers(0, 10))
    where = TopicPartition(topic, 0)
    async with consumer(real_kafka, auto_offset_reset="latest") as client:
        client.assign([where])
        assert await client.position(where) == 10
        foreign.produce(bootstrap, topic, numbers(10, 12))
        assert [record.offset for record in await read(client, 2)] == [10, 11]


@on_a_loop
async def test_without_a_reset_policy_a_missing_offset_is_an_error(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, numbers(0, 10))
    where = TopicPartition(topic, 0)
    async with consumer(real_kafka, auto_offset_reset="none") as client:
        client.assign([where])
        with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
            await client.poll(5_000)
        client.seek(where, 10_000)
        with pytest.raises(KafkaError, match=f"{topic}-0 has no offset 10000"):
            await client.poll(5_000)
        client.seek(where, 9)
        assert len(await read(client, 1)) == 1


@on_a_loop
async def test_an_offset_out_of_range_goes_where_the_policy_says(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, numbers(0, 10))
    where = TopicPartition(topic, 0)
    async with consumer(real_kafka) as client:
        client.assign([where])
        client.seek(where, 10_000)
        assert (await read(client, 10))[0].offset == 0


@on_a_loop
async def test_paused_partitions_are_silent_and_lose_nothing(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap, partitions=2)
    for partition in range(2):
        foreign.produce(bootstrap, topic, numbers(0, 50), partition)
    quiet, loud = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with consumer(real_kafka) as client:
        client.assign([quiet, loud])
        client.pause(quiet)
        assert client.paused() == {quiet}
        assert {record.partition for record in await read(client, 50)} == {1}
        assert await client.poll(100) == {}
        client.resume(quiet)
        assert [record.offset for record in await read(client, 50)] == list(range(50))


@on_a_loop
async def test_what_is_committed_is_where_the_next_one_begins(real_kafka: RealKafka) -> None:
    bootstrap, group = real_kafka.bootstrap_servers, uuid.uuid4().hex
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, numbers(0, 100))
    where = TopicPartition(topic, 0)
    async with consumer(real_kafka, group_id=group, enable_auto_commit=False) as client:
        client.assign([where])
        assert await client.committed(where) == {}
        await read(client, 100)
        await client.commit({where: OffsetAndMetadata(40, "so far")})
        assert await client.committed(where) == {where: OffsetAndMetadata(40, "so far")}
    assert foreign.committed(bootstrap, group, topic) == 40
    async with consumer(real_kafka, group_id=group, max_poll_records=20) as client:
        client.assign([where])
        assert [record.offset for record in await read(client, 20)] == list(range(40, 60))
        await client.commit()
        assert foreign.committed(bootstrap, group, topic) == 60


@on_a_loop
async def test_closing_commits_what_was_handed_out(real_kafka: RealKafka) -> None:
    bootstrap, group = real_kafka.bootstrap_servers, uuid.uuid4().hex
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, numbers(0, 100))
    async with consumer(real_kafka, group_id=group, max_poll_records=30) as client:
        client.assign([TopicPartition(topic, 0)])
        await read(client, 30)
    assert foreign.committed(bootstrap, group, topic) == 30


@on_a_loop
async def test_deserializers_see_what_is_not_null(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap)
    foreign.produce(bootstrap, topic, numbers(5, 7))
    async with consumer(real_kafka, value_deserializer=int, key_deserializer=str) as client:
        client.assign([TopicPartition(topic, 0)])
        records = await read(client, 2)
    assert [(record.key, record.value) for record in records] == [(None, 5), (None, 6)]


@on_a_loop
async def test_questions_about_topics_and_offsets(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap, partitions=3)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"", partition=1, timestamp=1_000 + number)
    assert producer.flush(30) == 0
    busy, empty = TopicPartition(topic, 1), TopicPartition(topic, 2)
    async with consumer(real_kafka, allow_auto_create_topics=False) as client:
        assert await client.beginning_offsets([busy, empty]) == {busy: 0, empty: 0}
        assert await client.end_offsets([busy, empty]) == {busy: 10, empty: 0}
        found = await client.offsets_for_times({busy: 1_004, empty: 0})
        assert found[empty] is None
        assert found[busy] == OffsetAndTimestamp(4, 1_004, 0)
        assert (await client.offsets_for_times({busy: 9_999}))[busy] is None
        assert await client.partitions_for_topic(topic) == frozenset({0, 1, 2})
        assert await client.partitions_for_topic("no-such-topic") is None
        assert topic in await client.topics()
        assert "__consumer_offsets" not in await client.topics()


@on_a_loop
async def test_calls_that_make_no_sense_say_so(real_kafka: RealKafka) -> None:
    async with consumer(real_kafka) as client:
        with pytest.raises(ConfigError, match="group_id"):
            client.subscribe(["t"])
        with pytest.raises(ConfigError, match="group_id"):
            await client.commit()
        with pytest.raises(LocalProtocolError, match="not assigned"):
            client.seek(TopicPartition("t", 0), 1)
    with pytest.raises(LocalProtocolError, match="closed"):
        await client.poll()


@on_a_loop
async def test_a_wakeup_ends_a_poll(real_kafka: RealKafka) -> None:
    topic = foreign.new_topic(real_kafka.bootstrap_servers)
    async with consumer(real_kafka) as client:
        client.assign([TopicPartition(topic, 0)])
        client.wakeup()
        assert await client.poll(60_000) == {}


@on_a_loop
async def test_aborted_transactions_are_left_out(real_kafka: RealKafka) -> None:
    bootstrap = real_kafka.bootstrap_servers
    topic = foreign.new_topic(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    async with consumer(real_kafka, isolation_level="read_committed") as client:
        client.assign([TopicPartition(topic, 0)])
        assert [record.value for record in await read(client, 3)] == [b"0", b"2", b"4"]
        client.seek_to_beginning()
        assert (await read_columns(client, 3))["value"].to_pylist() == [b"0", b"2", b"4"]
