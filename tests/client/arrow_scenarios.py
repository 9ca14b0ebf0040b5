"""Scenarios of `send_arrow` for any broker: the embedded one and a real Kafka."""

from __future__ import annotations

import copy
import itertools
import logging
import pickle
import random
import re
import threading
import uuid
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest
from confluent_kafka import Message

from kohort.client import AsyncProducer, Consumer, Producer
from kohort.client.producer.arrow.delivery import ArrowDelivery, ArrowDeliveryError, PartitionRows
from kohort.client.producer.partitioner import partition_for_key
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition as OurPartition
from tests.client.cutting_proxy import CuttingProxy
from tests.client.producer_scenarios import read_messages
from tests.real_kafka.foreign import new_topic

with warnings.catch_warnings():
    # It reads its schemas with a call that only Python 3.11 reports as deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, TopicPartition

PARTITIONS = 4
START = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
WAIT_S = 60


class Row(NamedTuple):
    """The contents of one record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp: int | None


def random_rows(count: int, *, partitions: int = PARTITIONS) -> list[Row]:
    """Return rows of every kind; values contain numbers, so that they can be told apart."""
    chance = random.Random(17)
    rows = []
    for number in range(count):
        value = b"%08d" % number + chance.randbytes(chance.choice((0, 5, 90, 300)))
        names = chance.choice(((), (), ("a",), ("source", "source", "e\u00e9")))
        rows.append(
            Row(
                chance.choice((None, b"", b"key-%d" % number, b"shared")),
                None if number % 7 == 0 else value,
                tuple((name, chance.choice((None, b"", b"content"))) for name in names),
                chance.choice((None, None, chance.randrange(partitions))),
                chance.choice((None, START + number)),
            )
        )
    return rows


def table_of(rows: list[Row]) -> pa.RecordBatch:
    """Return rows as columns."""
    headers = [[{"key": name, "value": content} for name, content in row.headers] for row in rows]
    return pa.record_batch(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.large_binary()),
            "headers": pa.array(headers, HEADERS),
            "partition": pa.array([row.partition for row in rows], pa.int32()),
            "timestamp": pa.array([row.timestamp for row in rows], pa.timestamp("ms")),
        }
    )


def stored(bootstrap: str, topic: str, partition: int) -> list[Row]:
    """Return the records of a partition, as librdkafka reads them."""
    return [
        Row(
            each.key(),
            each.value(),
            tuple(headers_of(each)),
            partition,
            each.timestamp()[1],
        )
        for each in read_messages(bootstrap, topic, partition)
    ]


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """Return headers in the form in which a consumer returns them."""
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def check_stored(bootstrap: str, topic: str, rows: list[Row], delivery: ArrowDelivery) -> None:
    """Compare each partition with the sent rows: each row once, in order, in its partition."""
    left = list(rows)
    assert delivery.rows == len(rows)
    assert sum(each.rows for each in delivery.partitions.values()) == len(rows)
    for partition in range(PARTITIONS):
        found = stored(bootstrap, topic, partition)
        expected, left = matching(left, found, partition)
        assert len(found) == len(expected)
        for row, record in zip(expected, found, strict=True):
            assert record[:3] == row[:3]
            assert row.timestamp in (None, record.timestamp)
            assert row.partition in (None, partition)
            if row.partition is None and row.key is not None:
                assert partition == partition_for_key(row.key, PARTITIONS)
        got = delivery.partitions.get(partition)
        assert got == (PartitionRows(len(found), 0, len(found) - 1) if found else None)
    assert left == []


def matching(rows: list[Row], found: list[Row], partition: int) -> tuple[list[Row], list[Row]]:
    """Return the rows that belong in a partition, in order, and the rest."""
    sticky = iter([each for each in found if each.key is None])
    upcoming = next(sticky, None)
    here: list[Row] = []
    elsewhere: list[Row] = []
    for row in rows:
        if row.partition is not None:
            belongs = row.partition == partition
        elif row.key is not None:
            belongs = partition_for_key(row.key, PARTITIONS) == partition
        else:
            belongs = upcoming is not None and upcoming[:3] == row[:3]
        (here if belongs else elsewhere).append(row)
        if belongs and row.key is None:
            upcoming = next(sticky, None)
    return here, elsewhere


def every_column_arrives(bootstrap: str, codec: str) -> None:
    topic = new_topic(bootstrap, partitions=PARTITIONS)
    rows = [
        row._replace(value=row.value or b"%d" % at) for at, row in enumerate(random_rows(5_000))
    ]
    with Producer(
        bootstrap_servers=bootstrap, compression_type=codec, max_request_size=50_000
    ) as producer:
        delivery = producer.send_arrow(topic, table_of(rows)).result(WAIT_S)
    check_stored(bootstrap, topic, rows, delivery)


def nulls_and_empty_values_stay_what_they_are(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    values = [None, b"", b"v", None]
    table = pa.table({"value": pa.chunked_array([values[:2], [], values[2:]], pa.binary())})
    with Producer(bootstrap_servers=bootstrap) as producer:
        delivery = producer.send_arrow(topic, table).result(WAIT_S)
        nothing = producer.send_arrow(topic, table.slice(0, 0)).result(WAIT_S)
    assert delivery == ArrowDelivery(topic, 4, {0: PartitionRows(4, 0, 3)})
    assert nothing == ArrowDelivery(topic, 0, {})
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=30_000)
    at = TopicPartition(topic, 0)
    try:
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        found = [next(consumer) for _ in values]
    finally:
        consumer.close()
    assert [(each.key, each.value, list(each.headers)) for each in found] == [
        (None, value, []) for value in values
    ]


def what_was_polled_can_be_sent(bootstrap: str) -> None:
    source = new_topic(bootstrap, partitions=PARTITIONS)
    target = new_topic(bootstrap, partitions=PARTITIONS)
    rows = random_rows(2_000)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_arrow(source, table_of(rows)).result(WAIT_S)
        futures = [producer.send_arrow(target, batch) for batch in polled(bootstrap, source, 2_000)]
        assert sum(future.result(WAIT_S).rows for future in futures) == 2_000
    for partition in range(PARTITIONS):
        assert stored(bootstrap, target, partition) == stored(bootstrap, source, partition)


def polled(bootstrap: str, topic: str, count: int) -> Iterator[pa.RecordBatch]:
    """Yield the results of `poll_arrow` until there are `count` rows."""
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
    ) as consumer:
        while count > 0:
            batch = consumer.poll_arrow(timeout_ms=1_000)
            count -= batch.num_rows
            yield batch


def the_order_of_send_and_send_arrow_is_kept(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    expected = []
    with Producer(
        bootstrap_servers=bootstrap, linger_ms=10_000, max_request_size=2_000
    ) as producer:
        for turn in range(20):
            single = b"%d single" % turn
            many = [b"%d row %d" % (turn, row) for row in range(100)]
            producer.send(topic, single)
            producer.send_arrow(topic, pa.record_batch({"value": many}))
            expected += [single, *many]
        producer.flush(WAIT_S)
    assert [each.value() for each in read_messages(bootstrap, topic)] == expected


def lost_answers_make_no_duplicates(bootstrap: str) -> None:
    """Every third answer is lost while five requests are in flight."""
    topic = new_topic(bootstrap)
    values = [b"%05d" % number for number in range(4_000)]
    with (
        CuttingProxy(bootstrap, lambda number: number % 3 == 0) as proxy,
        Producer(
            bootstrap_servers=proxy.bootstrap_servers,
            max_request_size=1_000,
            retry_backoff_ms=10,
            reconnect_backoff_ms=1,
        ) as producer,
    ):
        delivery = producer.send_arrow(topic, pa.record_batch({"value": values})).result(WAIT_S)
        assert proxy.lost > 0
    assert delivery == ArrowDelivery(topic, 4_000, {0: PartitionRows(4_000, 0, 3_999)})
    assert [each.value() for each in read_messages(bootstrap, topic)] == values


def what_a_broker_refuses_is_told_from_the_rest(bootstrap: str) -> None:
    """A compacted topic accepts no records without a key; those of one partition have none."""
    topic = new_topic(bootstrap, partitions=3, cleanup_policy="compact")
    where = [number % 3 for number in range(30)]
    keys = [None if partition == 1 else b"k" for partition in where]
    table = pa.table({"key": keys, "value": ["v"] * 30, "partition": where})
    parts = pa.concat_tables([table.slice(0, 10), table.slice(10)])
    with Producer(bootstrap_servers=bootstrap) as producer:
        error = producer.send_arrow(topic, parts).exception(WAIT_S)
    assert isinstance(error, ArrowDeliveryError)
    for each in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert each.delivered.rows == 20
        assert sorted(each.delivered.partitions) == [0, 2]
        assert each.rows.to_pylist() == list(range(1, 30, 3))
        assert each.failures[1].rows == 10
        assert re.search(
            rf"20 of 30 rows were delivered to {topic}, 10 were not: {topic}-1 \(10 rows\):"
            rf" INVALID_RECORD: {topic}-1: .*key",
            str(each),
        )
    assert isinstance(error.__cause__, KafkaError)
    assert error.__cause__.code == ErrorCode.INVALID_RECORD
    assert [len(stored(bootstrap, topic, partition)) for partition in range(3)] == [10, 0, 10]


def batches_too_large_for_the_topic_are_divided(bootstrap: str) -> None:
    """The first record is too large even alone; the others continue without it."""
    topic = new_topic(bootstrap, partitions=2, max_message_bytes="20000")
    small = [b"%05d" % number + b"v" * 95 for number in range(2_000)]
    table = pa.table({"value": [b"v" * 30_000, *small], "partition": [1] + [0, 1] * 1_000})
    with Producer(bootstrap_servers=bootstrap) as producer:
        future = producer.send_arrow(topic, table)
        producer.send(topic, b"later", partition=0)
        producer.flush(WAIT_S)
        error = future.exception(0)
    assert isinstance(error, ArrowDeliveryError)
    assert error.rows.to_pylist() == [0]
    assert error.failures[1].rows == 1
    assert isinstance(error.failures[1].error, KafkaError)
    assert error.failures[1].error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert error.delivered.partitions == {
        0: PartitionRows(1_000, 0, 999),
        1: PartitionRows(1_000, 0, 999),
    }
    assert [row.value for row in stored(bootstrap, topic, 0)] == [*small[0::2], b"later"]
    assert [row.value for row in stored(bootstrap, topic, 1)] == small[1::2]


def batches_are_divided_until_they_fit(bootstrap: str, codec: str) -> None:
    """One batch of 1 MiB for a topic that accepts 2,000 bytes: it is split repeatedly."""
    topic = new_topic(bootstrap, max_message_bytes="2000")
    values = [b"%05d" % number + random.Random(number).randbytes(150) for number in range(1_000)]
    values[37] = random.Random(37).randbytes(3_000)
    small = values[:37] + values[38:]
    with Producer(
        bootstrap_servers=bootstrap, compression_type=codec, batch_size=1_000_000
    ) as producer:
        future = producer.send_arrow(topic, pa.table({"value": values}))
        after = producer.send_arrow(topic, pa.table({"value": [b"after"]}))
        producer.flush(WAIT_S)
        error = future.exception(0)
        assert after.get(0).rows == 1
        closing = producer.send_arrow(topic, pa.table({"value": small}))
    assert isinstance(error, ArrowDeliveryError)
    assert error.rows.to_pylist() == [37]
    assert error.delivered.rows == len(small)
    assert closing.result(0).rows == len(small)
    assert [row.value for row in stored(bootstrap, topic, 0)] == [*small, b"after", *small]


def headers_alone_make_a_batch_too_large(bootstrap: str) -> None:
    """The record that fits is written, although all bytes of the other are in a header."""
    topic = new_topic(bootstrap, max_message_bytes="2000")
    headers = pa.array([None, [{"key": "h", "value": bytes(3_000)}]], HEADERS)
    table = pa.table({"value": [b"a", b"b"], "headers": headers})
    with Producer(bootstrap_servers=bootstrap) as producer:
        error = producer.send_arrow(topic, table).exception(WAIT_S)
        assert isinstance(error, ArrowDeliveryError)
        assert error.rows.to_pylist() == [1]


def times_before_1970_are_refused_before_anything_is_sent(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    rows = 60_000
    with Producer(bootstrap_servers=bootstrap) as producer:
        for unit, bad in (("us", -1_500), ("us", -999), ("ms", -2), ("ns", -1_000_001)):
            times = pa.array([0] * (rows - 1) + [bad], pa.timestamp(unit))
            table = pa.table({"value": [b"v" * 100] * rows, "timestamp": times})
            with pytest.raises(ValueError, match=rf"row {rows - 1} for .*before 1970"):
                producer.send_arrow(topic, table)
        none = pa.table({"value": [b"none"], "timestamp": pa.array([-1_000], pa.timestamp("us"))})
        assert producer.send_arrow(topic, none).get(WAIT_S).partitions[0].first_offset == 0


def times_beyond_microseconds_are_read(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """A producer uses nanoseconds: `poll` returns them, `poll_arrow` the nearest possible time."""
    # The record of 1970 is in a segment of its own, which Apache Kafka would delete as too old.
    latest = str(2**63 - 1)
    topic = new_topic(bootstrap, message_timestamp_after_max_ms=latest, retention_ms="-1")
    beyond = 1_700_000_000_000_000_000
    with Producer(bootstrap_servers=bootstrap) as producer:
        for time in (5, beyond, beyond, 6):
            producer.send(topic, b"v", timestamp_ms=time).get(WAIT_S)
    with caplog.at_level(logging.WARNING), Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([OurPartition(topic, 0)])
        for _ in range(2):
            consumer.seek(OurPartition(topic, 0), 0)
            times: list[int] = []
            while len(times) < 4:
                batch = consumer.poll_arrow(timeout_ms=1_000)
                times += batch["timestamp"].cast(pa.int64()).to_pylist()
            nearest = 2**63 // 1000 * 1000
            assert times == [5_000, nearest, nearest, 6_000]
        consumer.seek(OurPartition(topic, 0), 0)
        plain = [record.timestamp for record in itertools.islice(consumer, 4)]
    assert plain == [5, beyond, beyond, 6]
    told = [each.getMessage() for each in caplog.records if "microseconds" in each.getMessage()]
    assert len(told) == 1
    assert told[0].startswith(f"{topic}-0: timestamps, the first at offset 1, are beyond")


def partitions_are_those_of_send(bootstrap: str, partitioner: Any) -> None:
    topic = new_topic(bootstrap, partitions=7)
    keys = [b"key-%d" % number for number in range(300)]
    table = pa.record_batch({"key": keys, "value": keys})
    texts = table.set_column(0, "key", table.column(0).cast(pa.string()))
    with Producer(bootstrap_servers=bootstrap, partitioner=partitioner) as producer:
        futures = [producer.send(topic, key, key=key) for key in keys]
        went = [future.result(WAIT_S).partition for future in futures]
        producer.send_arrow(topic, table).result(WAIT_S)
        producer.send_arrow(topic, texts).result(WAIT_S)
    for partition in range(7):
        found = [row.key for row in stored(bootstrap, topic, partition)]
        here = [key for key, place in zip(keys, went, strict=True) if place == partition]
        assert found == here * 3


def nothing_is_sent_of_a_table_with_a_bad_row(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=2)
    bad: list[tuple[type[Exception], str, dict[str, object]]] = [
        (KafkaError, "row 1 for .*: there is no partition 2", {"partition": [0, 2]}),
        (KafkaError, "MESSAGE_TOO_LARGE: row 1 for", {"key": [b"", b"k" * 2**20]}),
        (ValueError, "unknown columns 'v2'", {"v2": [b"a", b"b"]}),
        (
            ValueError,
            "row 1 for .*: the timestamp",
            {"timestamp": pa.array([0, -5], pa.timestamp("s"))},
        ),
        (TypeError, "the column 'key' is of type int64", {"key": [1, 2]}),
    ]
    with Producer(bootstrap_servers=bootstrap) as producer:
        for kind, text, columns in bad:
            with pytest.raises(kind, match=text):
                producer.send_arrow(topic, pa.record_batch({"value": [b"a", b"b"], **columns}))
        with pytest.raises(TypeError, match="not list"):
            producer.send_arrow(topic, [b"a"])
        assert producer.send(topic, b"next", partition=0).result(WAIT_S).offset == 0
        assert producer.send(topic, b"next", partition=1).result(WAIT_S).offset == 0


def threads_share_a_small_memory(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=PARTITIONS)
    with Producer(bootstrap_servers=bootstrap, buffer_memory=20_000, batch_size=1_000) as producer:

        def work(name: int) -> None:
            for turn in range(5):
                values = [b"%d %d %03d" % (name, turn, row) + b"x" * 80 for row in range(500)]
                where = pa.array([name] * 500, pa.int32())
                table = pa.record_batch({"value": values, "partition": where})
                future = producer.send_arrow(topic, table)
                producer.send(topic, b"%d %d end" % (name, turn), partition=name)
                assert future.result(WAIT_S).rows == 500

        threads = [threading.Thread(target=work, args=(name,)) for name in range(PARTITIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    for name in range(PARTITIONS):
        expected = []
        for turn in range(5):
            expected += [b"%d %d %03d" % (name, turn, row) + b"x" * 80 for row in range(500)]
            expected.append(b"%d %d end" % (name, turn))
        assert [row.value for row in stored(bootstrap, topic, name)] == expected


def each_acks_delivers(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    found = []
    for acks in (0, 1, "all"):
        settings: dict[str, Any] = {"acks": acks, "enable_idempotence": acks == "all"}
        with Producer(bootstrap_servers=bootstrap, **settings) as producer:
            table = pa.record_batch({"value": [str(acks)] * 10})
            found.append(producer.send_arrow(topic, table).result(WAIT_S).partitions[0])
            producer.flush(WAIT_S)
    assert found[0] == PartitionRows(10, -1, -1)
    assert found[1].last_offset == found[1].first_offset + 9
    assert found[1].last_offset < found[2].first_offset


async def a_loop_sends_tables(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=PARTITIONS)
    rows = [
        row._replace(value=row.value or b"%d" % at) for at, row in enumerate(random_rows(5_000))
    ]
    async with AsyncProducer(
        bootstrap_servers=bootstrap, buffer_memory=100_000, max_request_size=20_000
    ) as producer:
        with pytest.raises(ValueError, match="no column 'value'"):
            _ = await producer.send_arrow(topic, pa.table({"key": ["a"]}))
        future = await producer.send_arrow(topic, table_of(rows))
        delivery = await future
    check_stored(bootstrap, topic, rows, delivery)
