"""Scenarios of reading a range for any broker: the embedded one and a real Kafka."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kohort.client.net.backoff import Deadline
from kohort.errors import ErrorCode, KafkaError
from kohort.spark.source.fetch.ranges import (
    OffsetRange,
    RangeLostError,
    RangeReader,
    close_idle_connections,
)
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.peer import Peer
from tests.broker.processes import eventually
from tests.real_kafka.foreign import create_topic, new_topic

ForeignHeaders = list[tuple[str, str | bytes | None]] | None

RECORDS = 2_000


def filled_topic(bootstrap: str, codec: str = "none") -> str:
    """A topic whose only partition has many small batches."""
    topic = new_topic(bootstrap)
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5}
    producer = Producer({**settings, "batch.num.messages": 100})
    for number in range(RECORDS):
        headers: ForeignHeaders = [("n", b"%d" % number)] if number % 2 else None
        producer.produce(topic, value(number), key=b"k%d" % number, partition=0, headers=headers)
    assert producer.flush(30) == 0
    return topic


def value(number: int) -> bytes:
    return b"value %d" % number


def read(
    bootstrap: str, topic: str, start: int, end: int, *, headers: bool = False, **settings: str
) -> pa.Table:
    """Read a range; a setting's `_` stands for a dot."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    reader = RangeReader(bootstrap, given)
    batches = list(reader.read(topic, 0, start, end, include_headers=headers))
    assert all(batch.num_rows for batch in batches)
    return pa.Table.from_batches(batches)


def id_of(bootstrap: str, topic: str) -> uuid.UUID:
    """The topic's id at the broker; zero when there is none."""
    with Peer(bootstrap) as peer:
        asked = MetadataRequest(
            topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
        )
        return peer.ask(asked, 12).topics[0].topic_id


def delete(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until its broker confirms it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: not id_of(bootstrap, topic).int, "the topic is gone")


def make_anew(bootstrap: str, topic: str) -> None:
    """Delete and recreate a topic, and wait until its broker confirms it."""
    delete(bootstrap, topic)
    create_topic(bootstrap, topic, 1)
    eventually(lambda: bool(id_of(bootstrap, topic).int), "the topic is there again")


def check(table: pa.Table, start: int, end: int) -> None:
    assert table["offset"].to_pylist() == list(range(start, end))
    assert table["value"].to_pylist() == [value(number) for number in range(start, end)]


def any_range_is_read_exactly(bootstrap: str, codec: str) -> None:
    topic = filled_topic(bootstrap, codec)
    for start, end in [(0, RECORDS), (0, 1), (17, 1234), (RECORDS - 1, RECORDS)]:
        check(read(bootstrap, topic, start, end), start, end)
        small = read(bootstrap, topic, start, end, max_partition_fetch_bytes="1000")
        check(small, start, end)


def headers_come_when_asked_for(bootstrap: str) -> None:
    topic = filled_topic(bootstrap)
    table = read(bootstrap, topic, 0, 4, headers=True)
    assert table["headers"].to_pylist() == [
        None,
        [{"key": "n", "value": b"1"}],
        None,
        [{"key": "n", "value": b"3"}],
    ]
    assert "headers" not in read(bootstrap, topic, 0, 4).column_names


def an_empty_range_asks_nobody(bootstrap: str) -> None:
    assert not list(RangeReader(bootstrap).read("no-such-topic", 0, 5, 5))


def offsets_beyond_the_end_are_lost(bootstrap: str) -> None:
    topic = filled_topic(bootstrap)
    with pytest.raises(RangeLostError, match=f"{topic}-0 offsets 5000 to 6000.*from 5000 on"):
        read(bootstrap, topic, 5000, 6000)


def an_end_that_never_comes_is_an_error_in_time(bootstrap: str) -> None:
    topic = filled_topic(bootstrap)
    with pytest.raises(KafkaError, match=f"{topic}-0.*nothing came from {RECORDS}"):
        read(bootstrap, topic, 0, RECORDS + 1, default_api_timeout_ms="3000")


def a_topic_that_is_not_there_is_named(bootstrap: str) -> None:
    with pytest.raises(KafkaError, match=r"UNKNOWN_TOPIC_OR_PARTITION: nowhere-0 .*topic nowhere"):
        read(bootstrap, "nowhere", 0, 1, default_api_timeout_ms="2000")


def a_reader_that_stops_early_disturbs_nobody(bootstrap: str) -> None:
    topic = filled_topic(bootstrap)
    settings = {"max.partition.fetch.bytes": "1000"}
    for _ in range(3):
        some = RangeReader(bootstrap, settings).read(topic, 0, 0, RECORDS)
        assert next(some)["offset"][0].as_py() == 0
        some.close()
    check(read(bootstrap, topic, 0, RECORDS), 0, RECORDS)


def a_range_is_read_by_the_id_of_its_topic(bootstrap: str) -> None:
    topic = filled_topic(bootstrap)
    wanted = OffsetRange(topic, 0, 10, 20, id_of(bootstrap, topic))
    check(pa.Table.from_batches(RangeReader(bootstrap).read_columns(wanted)), 10, 20)


def another_topic_of_the_name_is_never_read(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the partition's location is already known, or requested."""
    topic = filled_topic(bootstrap)
    before = id_of(bootstrap, topic)
    old = OffsetRange(topic, 0, 10, 20, before)
    settings = {"default.api.timeout.ms": "60000"}
    list(RangeReader(bootstrap).read_columns(old))
    make_anew(bootstrap, topic)
    now = id_of(bootstrap, topic)
    refill(bootstrap, topic)
    for _ in range(2):
        with pytest.raises(RangeLostError) as caught:
            list(RangeReader(bootstrap, settings).read_columns(old))
        message = caught.value.message
        assert f"its id was {before} and is {now}" in message, message
        assert "set failOnDataLoss=false" in message
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_ID
    going_on = RangeReader(bootstrap, settings, fail_on_data_loss=False)
    assert not list(going_on.read_columns(old))
    (told,) = (each.message for each in caplog.records if "failOnDataLoss" in each.message)
    assert f"10 records of {topic}-0 (offsets 10 to 19) are lost and passed over" in told
    new = OffsetRange(topic, 0, 10, 20, now)
    check(pa.Table.from_batches(going_on.read_columns(new)), 10, 20)


def refill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(topic, value(number), partition=0)
    assert producer.flush(30) == 0


def a_deleted_topic_is_lost(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = filled_topic(bootstrap)
    wanted = OffsetRange(topic, 0, 10, 20, id_of(bootstrap, topic))
    delete(bootstrap, topic)
    settings = {"default.api.timeout.ms": "700"}
    with pytest.raises(RangeLostError, match=f"{topic}-0 offsets 10 to 20: .*topic {topic}"):
        list(RangeReader(bootstrap, settings).read_columns(wanted))
    going_on = RangeReader(bootstrap, settings, fail_on_data_loss=False)
    assert not list(going_on.read_columns(wanted))
    assert f"10 records of {topic}-0 (offsets 10 to 19) are lost" in caplog.text


def what_is_beyond_the_end_is_passed_over_if_wished(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = filled_topic(bootstrap)
    going_on = RangeReader(bootstrap, {"default.api.timeout.ms": "700"}, fail_on_data_loss=False)
    assert not list(going_on.read(topic, 0, 5000, 6000))
    assert f"1000 records of {topic}-0 (offsets 5000 to 5999) are lost" in caplog.text
    table = pa.Table.from_batches(going_on.read(topic, 0, RECORDS - 5, RECORDS + 5))
    check(table, RECORDS - 5, RECORDS)
    assert f"5 records of {topic}-0 (offsets {RECORDS} to {RECORDS + 4}) are lost" in caplog.text
    assert f"the log ends at {RECORDS}" in caplog.text


def columns_are_those_asked_for(bootstrap: str) -> None:
    topic = filled_topic(bootstrap)
    wanted = OffsetRange(topic, 0, 3, 1503)
    for columns in (["value"], ["headers", "offset"], ["topic", "key", "timestampType"]):
        table = pa.Table.from_batches(RangeReader(bootstrap).read_columns(wanted, columns))
        assert table.column_names == columns
        assert table == read(bootstrap, topic, 3, 1503, headers=True).select(columns)


def a_topic_is_found_with_one_question(bootstrap: str) -> None:
    """An answer for one partition also covers the others: the bootstrap address is not used."""
    topic = new_topic(bootstrap, 3)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(3):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0
    reader = RangeReader(bootstrap)
    deadline = Deadline(20_000)
    first = reader.places.find(topic, 0, None, deadline)
    close_idle_connections()
    over = Deadline(0)
    assert [reader.places.find(topic, each, None, over).leader for each in (1, 2)] == [
        first.leader
    ] * 2
