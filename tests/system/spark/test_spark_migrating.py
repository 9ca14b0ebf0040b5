"""Queries that change their source in real Spark: no record is lost, none comes twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.real_kafka.broker import RealKafka
from tests.real_kafka.foreign import new_topic
from tests.spark.moving import Query, Sink, converted, kohort, refused, span
from tests.spark.playing import committed, produce
from tests.spark.sessions import MARKS, connector_jars, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [*MARKS, pytest.mark.timeout(400)]
TEN = {0: 10, 1: 10, 2: 10}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    yield from session(spark__jars=connector_jars())


@pytest.fixture
def kafka_topic(real_kafka: RealKafka) -> str:
    return new_topic(real_kafka.bootstrap_servers, 3)


@pytest.fixture
def query(spark: SparkSession, real_kafka: RealKafka, kafka_topic: str) -> Query:
    return Query(spark, real_kafka.bootstrap_servers, kafka_topic)


def test_a_query_moves_to_kohort_and_back(
    query: Query, real_kafka: RealKafka, kafka_topic: str, tmp_path: Path
) -> None:
    """Each source reads a third of the records; with limits, so that there are several batches."""
    address, group = real_kafka.bootstrap_servers, f"group-of-{kafka_topic}"
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    sink = Sink()
    produce(address, kafka_topic, TEN)
    query.run("kafka", first, sink, maxOffsetsPerTrigger="12")
    batches = [batch for batch, _ in sink.batches]
    moved = converted("import-checkpoint", str(first), str(second), "-b", address, "--group", group)
    assert moved["offsets"] == {kafka_topic: {"0": 10, "1": 10, "2": 10}}
    assert moved["batch"] == batches[-1] > 0
    assert committed(address, kafka_topic, range(3)) == {0: 10, 1: 10, 2: 10}
    assert sink.rows == span({0: (0, 10), 1: (0, 10), 2: (0, 10)})

    query.run("kohort", second, sink)  # nothing to read, so no batch
    assert [batch for batch, _ in sink.batches] == batches
    produce(address, kafka_topic, TEN)
    query.run("kohort", second, sink, maxOffsetsPerTrigger="12")
    assert sink.rows == span({0: (0, 20), 1: (0, 20), 2: (0, 20)})
    assert committed(address, kafka_topic, range(3)) == {0: 20, 1: 20, 2: 20}

    converted("export-checkpoint", str(second), str(third), "-b", address, "--group", group)
    query.run("kafka", third, sink)
    produce(address, kafka_topic, TEN)
    query.run("kafka", third, sink, maxOffsetsPerTrigger="12")
    assert sink.rows == span({0: (0, 30), 1: (0, 30), 2: (0, 30)})
    numbers = [batch for batch, _ in sink.batches]
    assert numbers == list(range(len(numbers)))  # sinks that know batches by number see one query


def test_state_moves_with_the_checkpoint(
    query: Query, real_kafka: RealKafka, kafka_topic: str, tmp_path: Path
) -> None:
    address, group = real_kafka.bootstrap_servers, f"group-of-{kafka_topic}"
    counts: dict[int, int] = {}

    def note(frame: DataFrame, _: int) -> None:
        counts.update({row["partition"]: row["count"] for row in frame.collect()})

    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    produce(address, kafka_topic, TEN)
    query.count("kafka", first, note)
    assert counts == {0: 10, 1: 10, 2: 10}
    converted("import-checkpoint", str(first), str(second), "-b", address, "--group", group)
    produce(address, kafka_topic, TEN)
    query.count("kohort", second, note)
    assert counts == {0: 20, 1: 20, 2: 20}
    converted("export-checkpoint", str(second), str(third), "-b", address, "--group", group)
    produce(address, kafka_topic, TEN)
    query.count("kafka", third, note)
    assert counts == {0: 30, 1: 30, 2: 30}


@pytest.mark.parametrize(("old", "new", "command"), [
    ("kafka", "kohort", "import-checkpoint"),
    ("kohort", "kafka", "export-checkpoint"),
])  # fmt: skip
@pytest.mark.parametrize("batch", [0, 1])
def test_an_open_batch_is_repeated_or_dropped_as_asked(
    query: Query,
    real_kafka: RealKafka,
    kafka_topic: str,
    tmp_path: Path,
    old: str,
    new: str,
    command: str,
    batch: int,
) -> None:
    address, group = real_kafka.bootstrap_servers, f"group-of-{kafka_topic}"
    origin = tmp_path / "old"
    before = Sink()
    if batch:
        produce(address, kafka_topic, {0: 4, 1: 4})
        query.run(old, origin, before)
    produce(address, kafka_topic, TEN)
    failed = Sink()
    failed.fails = True
    query.run(old, origin, failed, maxOffsetsPerTrigger="12")
    where = ("-b", address, "--group", group, "--quiet-seconds", "0")
    told = refused(command, str(origin), str(tmp_path / "copy"), *where)
    assert f"batch {batch} has begun" in told
    assert "--open-batch repeat" in told
    assert not (tmp_path / "copy").exists()
    ((_, open_rows),) = failed.batches
    total = span({0: (0, 10 + 4 * batch), 1: (0, 10 + 4 * batch), 2: (0, 10)})
    for choice in ("drop", "repeat"):
        copy, again = tmp_path / choice, ["--reset-offsets"] * (command == "import-checkpoint")
        arguments = (str(origin), str(copy), *where, "--open-batch", choice)
        converted(command, *arguments, *again)
        sink = Sink()
        query.run(new, copy, sink)
        assert before.rows + sink.rows == total
        if choice == "repeat":  # the same records under the same number
            assert sink.batches[0] == (batch, open_rows)
        else:
            assert [rows for _, rows in sink.batches if rows] == [total - before.rows]
        if new == "kohort":
            assert committed(address, kafka_topic, [2]) == {2: 10}


def test_a_partition_that_is_added_meanwhile_is_read_from_its_beginning(
    query: Query, real_kafka: RealKafka, kafka_topic: str, tmp_path: Path
) -> None:
    address, group = real_kafka.bootstrap_servers, f"group-of-{kafka_topic}"
    admin = AdminClient({"bootstrap.servers": address})
    sink = Sink()
    produce(address, kafka_topic, TEN)
    query.run("kafka", tmp_path / "a", sink)
    admin.create_partitions([NewPartitions(kafka_topic, 4)])[kafka_topic].result(30)
    produce(address, kafka_topic, {3: 5})
    where = ("-b", address, "--group", group)
    converted("import-checkpoint", str(tmp_path / "a"), str(tmp_path / "b"), *where)
    query.run("kohort", tmp_path / "b", sink)
    admin.create_partitions([NewPartitions(kafka_topic, 5)])[kafka_topic].result(30)
    produce(address, kafka_topic, {4: 5})
    converted("export-checkpoint", str(tmp_path / "b"), str(tmp_path / "c"), *where)
    query.run("kafka", tmp_path / "c", sink)
    assert sink.rows == span({0: (0, 10), 1: (0, 10), 2: (0, 10), 3: (0, 5), 4: (0, 5)})


def test_spark_takes_the_offsets_that_are_printed(
    spark: SparkSession, query: Query, real_kafka: RealKafka, kafka_topic: str, tmp_path: Path
) -> None:
    """Of a group, of a checkpoint of either source: the rest is what Spark's own source reads."""
    address, group = real_kafka.bootstrap_servers, f"group-of-{kafka_topic}"
    produce(address, kafka_topic, TEN)
    query.run("kafka", tmp_path / "kafka", Sink())
    query.run("kohort", tmp_path / "kohort", Sink())
    produce(address, kafka_topic, TEN)
    where = ("-b", address, "--group", group)
    for arguments in (
        ("--checkpoint", str(tmp_path / "kafka")),
        ("--checkpoint", str(tmp_path / "kohort"), *where),
        where,
    ):
        done = kohort("export-offsets", *arguments)
        assert done.returncode == 0, done.stderr
        starting = {"kafka.bootstrap.servers": address, "subscribe": kafka_topic}
        starting["startingOffsets"] = done.stdout.strip()
        rest = spark.read.format("kafka").options(**starting).load()
        found = rest.select("partition", "offset").collect()
        assert sorted(map(tuple, found)) == sorted(span(dict.fromkeys(range(3), (10, 20))))
        shown = json.loads(kohort("export-offsets", *arguments, "--json").stdout)
        assert shown["startingOffsets"] == json.loads(done.stdout)
