"""What reading a range must do on any broker: the embedded one and a real Kafka run the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from kohort.client.ranges import RangeLostError, RangeReader
from kohort.errors import KafkaError
from tests.real_kafka.foreign import new_topic

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
        read(bootstrap, topic, 0, RECORDS + 1, default_api_timeout_ms="700")


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
