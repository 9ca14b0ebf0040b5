"""The writer against both brokers, driven like Spark does it, without a JVM."""

from __future__ import annotations

import logging
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema

from kohort.broker import EmbeddedBroker
from kohort.spark.options.source import OptionError
from kohort.spark.source.datasource import KohortDataSource
from kohort.spark.writer import task
from kohort.spark.writer.datasource import (
    KohortBatchWriter,
    KohortStreamWriter,
    TaskWritten,
    columns_of,
)
from kohort.spark.writer.task import WriteError, split
from tests.client.arrow_scenarios import headers_of
from tests.client.producer_scenarios import read_messages
from tests.real_kafka.broker import RealKafka, free_ports
from tests.real_kafka.foreign import new_topic
from tests.spark.crashing import crashing

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
T = TypeVar("T")
# Key, value and headers of a record.
Written = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "kafka":
        kafka: RealKafka = request.getfixturevalue("real_kafka")
        yield kafka.bootstrap_servers
        return
    with EmbeddedBroker(tmp_path_factory.mktemp("embedded")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def fresh_producers() -> Iterator[None]:
    """The producers of a worker end with it; those of a test's process end here."""
    yield
    while task._idle:
        task._idle.popitem()[1].close()


def write(
    bootstrap: str, batches: Iterable[pa.RecordBatch], like: pa.RecordBatch, **options: str
) -> dict[str, int]:
    """Write the batches of one task as Spark does it; return the rows by topic."""
    given = {"kafka.bootstrap.servers": bootstrap}
    given.update({key.replace("__", "."): value for key, value in options.items()})
    writer = KohortDataSource(given).writer(from_arrow_schema(like.schema), False)
    assert isinstance(writer, KohortBatchWriter)
    message = shipped(shipped(writer).write(iter(batches)))
    assert isinstance(message, TaskWritten)
    return dict(message.rows)


def shipped(each: T) -> T:
    """What another process of Spark's gets."""
    dumps: Callable[[T], bytes] = cloudpickle.dumps
    there: T = pickle.loads(dumps(each))
    return there


def write_one(bootstrap: str, batch: pa.RecordBatch, **options: str) -> dict[str, int]:
    return write(bootstrap, [batch], batch, **options)


def values(*given: bytes | None, **more: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(given, pa.binary()), **more})


def stored(bootstrap: str, topic: str, partition: int = 0) -> list[Written]:
    """What a partition holds, as librdkafka reads it."""
    return [
        (each.key(), each.value(), headers_of(each))
        for each in read_messages(bootstrap, topic, partition)
    ]


def test_every_column_arrives(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    headers: list[list[dict[str, object]] | None] = [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [],
    ]
    batch = pa.record_batch(
        {
            "offset": pa.array([7, 8, 9]),
            "headers": pa.array(headers, HEADERS),
            "value": pa.array(["v", None, ""]),
            "key": pa.array([None, "k", ""]),
        }
    )
    assert write_one(bootstrap, batch, topic=topic) == {topic: 3}
    assert stored(bootstrap, topic) == [
        (None, b"v", [("a", b"1"), ("a", None)]),
        (b"k", None, []),
        (b"", b"", []),
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_texts_and_bytes_are_the_same_bytes(bootstrap: str, kind: pa.DataType) -> None:
    topic = new_topic(bootstrap)
    batch = pa.record_batch(
        {"key": pa.array(["é"]).cast(kind), "value": pa.array(["größer"]).cast(kind)}
    )
    write_one(bootstrap, batch, topic=topic)
    assert stored(bootstrap, topic) == [("é".encode(), "größer".encode(), [])]


def test_the_partition_column_decides_and_null_leaves_the_choice(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=3)
    partition = pa.array([2, 0, None, 2], pa.int32())
    write_one(bootstrap, values(b"a", b"b", b"c", b"d", partition=partition), topic=topic)
    found = [[value for _, value, _ in stored(bootstrap, topic, each)] for each in range(3)]
    assert [value for value in found[2] if value != b"c"] == [b"a", b"d"]
    assert b"b" in found[0]
    assert Counter(value for each in found for value in each) == Counter([b"a", b"b", b"c", b"d"])


def test_rows_go_to_the_topics_of_their_column_in_order(bootstrap: str) -> None:
    topics = [new_topic(bootstrap) for _ in range(3)]
    chance = random.Random(4)
    rows = [(chance.choice(topics), b"%d" % number) for number in range(3_000)]
    batches = [
        values(*(value for _, value in part), topic=pa.array([topic for topic, _ in part]))
        for part in (rows[:1_000], rows[1_000:2_500], rows[2_500:])
    ]
    counts = Counter(topic for topic, _ in rows)
    assert write(bootstrap, batches, batches[0]) == counts
    for topic in topics:
        expected = [value for each, value in rows if each == topic]
        assert [value for _, value, _ in stored(bootstrap, topic)] == expected


def test_the_option_wins_over_the_column(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    batch = values(b"a", b"b", topic=pa.array(["elsewhere", None]))
    assert write_one(bootstrap, batch, topic=topic) == {topic: 2}


def test_a_null_topic_is_refused_before_its_batch_is_sent(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    batch = values(b"a", b"b", topic=pa.array([topic, None]))
    with pytest.raises(WriteError, match="the data contains a null topic: 1 of 2 rows") as caught:
        write_one(bootstrap, batch)
    assert "0 rows of this task were already acknowledged" in str(caught.value)
    assert stored(bootstrap, topic) == []


def test_a_topic_that_is_not_there_is_named(bootstrap: str) -> None:
    with pytest.raises(WriteError, match=r"cannot write to topic .*not a topic's name"):
        write_one(bootstrap, values(b"a", topic=pa.array(["not a topic"])))


def test_a_partition_that_is_not_there_is_named(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=2)
    batch = values(b"a", b"b", partition=pa.array([1, 2], pa.int32()))
    with pytest.raises(WriteError, match=f"topic {topic}: .*no partition 2, the topic has 2"):
        write_one(bootstrap, batch, topic=topic)
    assert stored(bootstrap, topic, 1) == []


def test_a_record_too_large_for_the_client_is_named(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    with pytest.raises(WriteError, match=r"row 1 .*What to do: .*kafka.max.request.size"):
        write_one(bootstrap, values(b"small", bytes(2_000_000)), topic=topic)
    assert stored(bootstrap, topic) == []


def test_a_record_too_large_for_the_topic_is_named(bootstrap: str) -> None:
    topic = new_topic(bootstrap, max_message_bytes="20000")
    with pytest.raises(WriteError, match=r"What to do: .*max.message.bytes"):
        write_one(bootstrap, values(b"small", random.randbytes(50_000)), topic=topic)


def test_what_was_acknowledged_before_an_error_is_counted(bootstrap: str) -> None:
    topic = new_topic(bootstrap)

    def batches() -> Iterator[pa.RecordBatch]:
        yield values(b"first")
        while not stored(bootstrap, topic):
            pass
        yield values(b"second")
        yield values(bytes(2_000_000))

    with pytest.raises(WriteError, match=r"[12] rows of this task were already acknowledged"):
        write(bootstrap, batches(), values(b""), topic=topic)


def test_what_is_on_its_way_at_an_error_is_counted_apart(bootstrap: str) -> None:
    """A batch goes to two topics, of which the second has a name that Kafka does not allow."""
    topic = new_topic(bootstrap)
    batch = values(b"a", b"b", b"c", topic=pa.array([topic, topic, "not a topic"]))
    counts = r"(\d+) rows of this .* stay in their topics(?:, and (\d+) were in flight)?"
    with pytest.raises(WriteError, match=r"cannot write to topic not a topic") as caught:
        write_one(bootstrap, batch)
    found = re.search(counts, str(caught.value))
    assert found is not None
    assert sum(int(each or 0) for each in found.groups()) == 2


def test_tasks_of_one_worker_share_a_producer(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    write_one(bootstrap, values(b"a"), topic=topic)
    (kept,) = task._idle.values()
    write_one(bootstrap, values(b"b"), topic=topic)
    assert list(task._idle.values()) == [kept]
    with pytest.raises(WriteError):
        write_one(bootstrap, values(bytes(2_000_000)), topic=topic)
    assert task._idle == {}
    write_one(bootstrap, values(b"c"), topic=topic)
    assert [value for _, value, _ in stored(bootstrap, topic)] == [b"a", b"b", b"c"]


def test_settings_choose_the_producer_and_only_a_few_are_kept(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    for number in range(task.KEPT + 2):
        write_one(bootstrap, values(b""), topic=topic, kafka__client__id=f"writer-{number}")
    assert len(task._idle) == task.KEPT


def test_a_task_without_rows_makes_no_producer(bootstrap: str) -> None:
    assert write(bootstrap, [values()], values(), topic="not-there") == {}
    assert task._idle == {}


def test_a_stream_writes_the_same(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = new_topic(bootstrap)
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "checkpointLocation": "x"}
    # With the output mode "complete" Spark asks to overwrite; its own writer appends then, too.
    writer = KohortDataSource(given).streamWriter(from_arrow_schema(values().schema), True)
    assert isinstance(writer, KohortStreamWriter)
    messages = [writer.write(iter([values(b"a", b"b")])), writer.write(iter([values(b"c")]))]
    with caplog.at_level(logging.INFO, "kohort.spark"):
        writer.commit(list(messages), 7)
    assert f"wrote batch 7: 3 rows, 3 to {topic}" in caplog.text
    writer.abort([messages[0], None], 8)
    assert f"could not write batch 8 to topic {topic}: 1 of 2 tasks had finished" in caplog.text
    assert f"their 2 rows (2 to {topic}) stay in the topics" in caplog.text
    assert Counter(value for _, value, _ in stored(bootstrap, topic)) == Counter([b"a", b"b", b"c"])


@pytest.mark.timeout(400)  # of which the broker may take much, beside other tests
@pytest.mark.parametrize("kind", ["embedded", "kafka"])
def test_a_broker_that_dies_and_comes_back_gets_every_row(tmp_path: Path, kind: str) -> None:
    with crashing(kind, tmp_path) as broker:
        topic = new_topic(broker.bootstrap_servers, partitions=2)
        rows = [b"%06d" % number * 20 for number in range(6_000)]

        def batches() -> Iterator[pa.RecordBatch]:
            yield values(*rows[:2_000])
            broker.kill()
            yield values(*rows[2_000:4_000])
            broker.start()
            yield values(*rows[4_000:])

        written = write(
            broker.bootstrap_servers,
            batches(),
            values(),
            topic=topic,
            kafka__delivery__timeout__ms="300000",
        )
        assert written == {topic: len(rows)}
        found = [
            value
            for partition in range(2)
            for _, value, _ in stored(broker.bootstrap_servers, topic, partition)
        ]
    assert set(found) == set(rows)


def test_without_a_broker_the_error_says_how_long_it_waited(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with pytest.raises(WriteError, match=f"topic flights: .*127.0.0.1:{port}"):
        write_one(f"127.0.0.1:{port}", values(b"a"), topic="flights", kafka__max__block__ms="300")


def columns(**kinds: pa.DataType) -> Callable[[str | None], dict[str, int]]:
    found = from_arrow_schema(pa.schema(list(kinds.items())))
    return lambda topic: columns_of(found, topic)


BYTES = pa.binary()


@pytest.mark.parametrize(
    ("kinds", "topic", "says"),
    [
        ({"value": BYTES}, None, "topic option required when no 'topic' attribute is present"),
        ({"key": BYTES}, "t", "Required attribute 'value' not found; the DataFrame has key"),
        ({"Value": BYTES}, "t", "Required attribute 'value' not found"),
        ({"value": pa.int32()}, "t", "value attribute unsupported type int. value must be a"),
        ({"value": BYTES, "key": pa.float64()}, "t", "key attribute unsupported type double"),
        ({"value": BYTES, "topic": pa.int32()}, None, "topic must be a.n. string$"),
        ({"value": BYTES, "partition": pa.int64()}, "t", "partition must be a.n. int$"),
        ({"value": BYTES, "headers": pa.list_(BYTES)}, "t", "headers attribute unsupported type"),
    ],
)
def test_columns_are_checked_as_sparks_own_writer_does(
    kinds: dict[str, pa.DataType], topic: str | None, says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        columns(**kinds)(topic)


def test_columns_are_found_by_place() -> None:
    kinds = {"n": pa.int64(), "value": BYTES, "headers": HEADERS, "topic": pa.int32()}
    assert columns(**kinds)("t") == {"value": 1, "headers": 2}


def test_overwriting_is_refused() -> None:
    source = KohortDataSource({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    with pytest.raises(OptionError, match=r'Use mode."append"'):
        source.writer(from_arrow_schema(values().schema), True)


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["c", "a", "b", "a", "c"]])
def test_rows_are_split_by_topic(names: list[str]) -> None:
    numbers = list(range(50))
    topics = [names[number * 7 % len(names)] for number in numbers]
    rows = pa.record_batch({"value": pa.array(numbers)})
    found = {name: part.column(0).to_pylist() for name, part in split(rows, pa.array(topics))}
    assert found == {
        name: [number for number in numbers if topics[number] == name] for name in set(topics)
    }
