"""Sinks in one Spark session: Delta tables in one line and on S3, and Spark's own file sink."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kohort.spark import DeltaAppendError, append
from kohort.spark.completion.sinks import Finding, check_sink, directory_digest, query_id
from tests.delta.rows import contents
from tests.spark import object_store
from tests.spark.playing import committed, options, produce
from tests.system.spark.test_spark import expected, pytestmark, rows_of, spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["pytestmark", "spark"]


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    with object_store.running() as found:
        yield found


def stream(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    frame = spark.readStream.format("kohort").options(**options(bootstrap, topic)).load()
    return frame.selectExpr("topic", "partition", "offset", "cast(value as string) v")


def test_a_stream_is_appended_in_one_line(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, {0: 20, 1: 10})
    rows = stream(spark, bootstrap, topic).selectExpr("*", "v as `a.b`", "v as `it's a name`")
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    query = append(rows, table, checkpoint=checkpoint, available_now=True, name="north")
    assert query.awaitTermination(100)
    assert query.name == "north"
    assert rows_of(table) == expected({0: 20, 1: 10})
    assert committed(bootstrap, topic, [0, 1]) == {0: 20, 1: 10}
    assert {"a.b", "it's a name"} < {*DeltaTable(table).to_pyarrow_table().column_names}
    # The group of the source is that of the table's positions.
    names = [entry["txn"]["appId"] for entry in log_entries(table) if "txn" in entry]
    assert all(name.startswith(f"group-of-{topic}/{topic}/") for name in names)


def log_entries(table: Path) -> list[dict[str, Any]]:
    import json

    files = sorted((table / "_delta_log").glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_executors_write_to_a_bucket(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, store: dict[str, str]
) -> None:
    table = f"s3a://{object_store.BUCKET}/{uuid.uuid4()}"
    for number in (1, 2):
        produce(bootstrap, topic, {0: 20, 1: 10})
        query = append(
            stream(spark, bootstrap, topic),
            table,
            checkpoint=tmp_path / "checkpoint",
            available_now=True,
            storage_options=store,
            partition_by=["partition"],
        )
        assert query.awaitTermination(100)
        found = contents(table, store)
        assert found == Counter((topic, *row) for row in expected({0: 20 * number, 1: 10 * number}))


def test_what_append_refuses(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    rows = stream(spark, bootstrap, topic)
    other = spark.readStream.format("kohort").options(
        **{**options(bootstrap, topic), "kafka.group.id": "south"}
    )
    both = rows.union(other.load().selectExpr("topic", "partition", "offset", "'' v"))
    foreign = spark.readStream.format("rate").load()
    foreign = foreign.selectExpr("'t' topic", "0 partition", "value offset")
    for frame, arguments, problem in (
        (rows.drop("offset"), {}, "needs the columns topic, partition, offset"),
        (spark.range(1), {}, "needs a stream"),
        (both, {}, "with the groups .*, south; pass group_id"),
        (foreign, {}, "kafka.group.id cannot be found: pass group_id"),
        (rows, {"every": "1 second", "available_now": True}, "exclude each other"),
        (rows, {"schema_mode": "any"}, "schema_mode must be one of"),
        (rows.selectExpr("*", "array() `a.b`"), {}, r"column 'a\.b' is array<void>"),
        (rows, {"partition_by": "origin"}, "partition_by names .origin., and the stream has"),
    ):
        with pytest.raises((ValueError, DeltaAppendError), match=problem):
            append(frame, tmp_path / "table", checkpoint=tmp_path / "ck", **arguments)
    assert list(tmp_path.iterdir()) == []


def remade_source() -> type:
    """A source that logs a topic's id as ours does; by value, as workers cannot import tests."""
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class Reader(SimpleDataSourceStreamReader):
        def __init__(self, settings: Any) -> None:
            self.count = int(settings["count"])
            self.offset = {"operator": "north", "ids": {"t": settings["id"]}}

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
            return {**self.offset, "at": 0}

        def read(self, start: dict[str, Any]) -> Any:
            rows = [("t", 0, offset) for offset in range(start["at"], self.count)]
            return iter(rows), {**self.offset, "at": self.count}

        def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Any:  # noqa: N802  # Spark's name
            return iter([("t", 0, offset) for offset in range(start["at"], end["at"])])

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "remade"

        def schema(self) -> str:
            return "topic string, partition int, offset bigint"

        def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802  # Spark's name
            return Reader(self.options)

    return Source


def test_the_ids_of_a_batch_come_from_sparks_offset_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(remade_source())
    for topic_id, count in (("first", 20), ("second", 10)):
        source = spark.readStream.format("remade").option("id", topic_id).option("count", count)
        checkpoint = tmp_path / topic_id
        query = append(
            source.load(),
            tmp_path / "table",
            checkpoint=checkpoint,
            group_id="g",
            available_now=True,
        )
        assert query.awaitTermination(100)
    assert rows_of(tmp_path / "table") == expected({0: 20}) + expected({0: 10})
    table = DeltaTable(tmp_path / "table")
    assert [table.transaction_version(f"g/t/0@{name}") for name in ("first", "second")] == [20, 10]


class FileQuery:
    """A query from text files to Spark's file sink, one batch for each `write`."""

    def __init__(self, spark: SparkSession, home: Path, name: str, directory: Path) -> None:
        self.spark = spark
        self.source = home / f"source-of-{name}"
        self.source.mkdir()
        self.checkpoint = home / f"checkpoint-of-{name}"
        self.directory = directory

    def write(self, word: str) -> None:
        (self.source / word).write_text(f"{word}\n")

    def run(self) -> list[Finding | None]:
        frame = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.source))
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.directory))
        )
        assert query.awaitTermination(100)
        return [
            check_sink(batch["sink"]["description"], str(self.checkpoint), batch["batchId"])
            for batch in query.recentProgress
        ]

    def words(self) -> set[str]:
        return {row.value for row in self.spark.read.parquet(str(self.directory)).collect()}


def test_a_query_with_a_directory_of_its_own_is_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = FileQuery(spark, tmp_path, "north", tmp_path / "my out")
    query.write("a")
    assert query.run() == [None]
    query.write("b")
    assert query.run() == [None]
    # Killed after the sink and before Spark's commit log: the batch runs again and is skipped.
    (query.checkpoint / "commits" / "1").unlink()
    (query.checkpoint / "commits" / ".1.crc").unlink()
    assert query.run() == [None]
    assert query.words() == {"a", "b"}
    assert query_id(str(query.checkpoint)) is not None
    assert query_id(str(tmp_path / "none")) is None


@pytest.mark.parametrize("name", ["out", "a b", "a%20b", "hour=10%3A00", "100%", "a+b#c?d"])
def test_batches_that_the_file_sink_skips_are_found(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Spark writes directories as they are named: a percent sign is a part of the name."""
    north = FileQuery(spark, tmp_path, "north", tmp_path / name)
    south = FileQuery(spark, tmp_path, "south", tmp_path / name)
    for word in "ab":
        north.write(word)
        assert north.run() == [None]
    south.write("c")
    (finding,) = south.run()
    assert finding is not None
    assert (finding.problem, finding.batch_id) == ("skipped", 0)
    assert "lists batches up to 1" in finding.text
    south.write("d")
    (finding,) = south.run()
    assert finding is not None
    assert "listed that batch before the query began it" in finding.text
    assert south.words() == {"a", "b"}  # what Spark has lost


def test_a_new_checkpoint_with_an_old_directory_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = FileQuery(spark, tmp_path, "north", tmp_path / "out")
    query.write("a")
    assert query.run() == [None]
    shutil.rmtree(query.checkpoint)
    query.write("b")
    findings = query.run()
    assert findings[0] is not None
    assert findings[0].problem == "skipped"
    assert "a new checkpoint and a new directory" in findings[0].text


def test_names_of_directories_are_told_apart() -> None:
    alike = {directory_digest(each) for each in ("file:/a/b", "/a/b", "file:///a//b/")}
    others = {directory_digest(each) for each in ("/a b", "/a%20b", "/a%2520b")}
    assert (len(alike), len(others)) == (1, 3)


def test_other_sinks_and_places_out_of_sight(tmp_path: Path) -> None:
    assert check_sink("ForeachBatchSink", str(tmp_path), 0) is None
    assert check_sink("MemorySink", str(tmp_path), 0) is None
    finding = check_sink("FileSink[dbfs:/out]", str(tmp_path), 0)
    assert finding is not None
    assert finding.problem == "unseen"
    assert "dbfs:/out" in finding.text
    assert check_sink(f"FileSink[file:{tmp_path}]", str(tmp_path), 0) is None
