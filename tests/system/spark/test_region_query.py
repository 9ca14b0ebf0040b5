"""Spark queries as operators of a consistent region."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from kohort.region import DeltaSink, ParquetDirectory
from kohort.region.inspecting import ask
from kohort.region.machines.records import STOP
from kohort.spark import DeltaAppend, drain, region_sink
from kohort.spark.completion.control import application_of_this_process, sources_in
from tests.real_kafka.foreign import create_topic
from tests.region.regions import eventually, running, visible, worker
from tests.region.regions import produce as produce_numbers
from tests.spark.playing import options
from tests.spark.region_queries import query, running_sum, stream
from tests.spark.sessions import MARKS, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = MARKS
spark = pytest.fixture(scope="module")(session)

PARTITIONS = 4
SCHEMA = pa.schema([(name, pa.int64()) for name in ("partition", "offset", "value", "sum")])


def wait(started: Any, holds: Callable[[], bool], what: str) -> None:
    """Wait, unless the query fails."""
    eventually(lambda: started.exception() is not None or holds(), what)
    if started.exception() is not None:
        raise started.exception()


def source_process() -> int:
    """The process of the source that was started last."""
    application = application_of_this_process()
    assert application is not None
    numbers = {int(each.name.split("-")[1]) for each in sources_in(application)}
    alive = [psutil.Process(number) for number in numbers if psutil.pid_exists(number)]
    number: int = max(alive, key=lambda process: process.create_time()).pid
    return number


def in_table(table: Path) -> int:
    """How many rows a Delta table has; checks that it is a cut.

    Raises:
        AssertionError: A record is missing or there twice, or has another state.
    """
    if not (table / "_delta_log").exists():
        return 0
    rows: list[dict[str, int]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    positions, sums = [0] * PARTITIONS, [0] * PARTITIONS
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        at = row["partition"]
        sums[at] += row["value"]
        assert (row["offset"], row["sum"]) == (positions[at], sums[at])
        positions[at] += 1
    return len(rows)


def test_two_queries_and_a_worker_join_and_leave(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    out, sink = tmp_path / "out", region_sink(ParquetDirectory(tmp_path / "out"), running_sum())
    produce_numbers(bootstrap, topic, PARTITIONS, 1_000)
    north = stream(spark, bootstrap, topic, "north")
    with query(north, sink, tmp_path / "once", availableNow=True) as once:
        assert once.awaitTermination(120)
    assert visible(out) == 1_000
    python = worker(
        bootstrap, topic, ParquetDirectory(out), "python", group_id=f"group-of-{topic}",
        period_ms=500, drain_timeout_ms=60_000,
        partition_assignment_strategy=["cooperative-sticky"], session_timeout_ms=10_000,
    )  # fmt: skip
    south = stream(spark, bootstrap, topic, "south")
    with query(north, sink, tmp_path / "other") as first, running(python) as (plain,):
        produce_numbers(bootstrap, topic, PARTITIONS, 2_000, first=1_000)
        wait(first, lambda: visible(out) == 3_000 and plain.owned > 0, "both read")
        with query(south, sink, tmp_path / "south") as second:
            produce_numbers(bootstrap, topic, PARTITIONS, 4_000, first=3_000)
            wait(second, lambda: visible(out) == 7_000, "all is visible")
            drain(second)
        produce_numbers(bootstrap, topic, PARTITIONS, 1_000, first=7_000)
        wait(first, lambda: visible(out) == 8_000, "what came later is visible")
        assert plain.error is None


def test_a_killed_source_and_what_spark_repeats(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    sink = region_sink(DeltaSink(table, SCHEMA), running_sum())
    frame = stream(spark, bootstrap, topic, "north")
    produce_numbers(bootstrap, topic, PARTITIONS, 4_000)
    with query(frame, sink, checkpoint) as started:
        wait(started, lambda: in_table(table) > 0, "it has begun")
        os.kill(source_process(), signal.SIGKILL)
        with pytest.raises(StreamingQueryException):
            started.awaitTermination(120)
    with query(frame, sink, checkpoint) as started:
        wait(started, lambda: in_table(table) == 4_000, "all is in the table, once")
    # Spark forgets that the last batch is over, and repeats it: with a region that adds nothing.
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    commits[-1].unlink()
    (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    produce_numbers(bootstrap, topic, PARTITIONS, 400, first=4_000)
    with query(frame, sink, checkpoint, availableNow=True) as started:
        assert started.awaitTermination(120)
    assert in_table(table) == 4_400


def test_a_killed_application(
    spark: SparkSession,
    real_kafka: Any,
    topic: str,
    tmp_path: Path,
) -> None:
    bootstrap, out = real_kafka.bootstrap_servers, tmp_path / "out"

    create_topic(bootstrap, topic, PARTITIONS)
    produce_numbers(bootstrap, topic, PARTITIONS, 4_000)
    command = [sys.executable, "-m", "tests.spark.region_queries", bootstrap, topic]
    command += [str(out), str(tmp_path / "checkpoint"), "north"]
    with subprocess.Popen(command, cwd=Path(__file__).parents[3]) as application:
        eventually(lambda: out.exists() and visible(out) > 0, "it has begun")
        for child in psutil.Process(application.pid).children():
            child.kill()  # the JVM
        application.kill()
    sink = region_sink(ParquetDirectory(out), running_sum())
    frame = stream(spark, bootstrap, topic, "north")
    with query(frame, sink, tmp_path / "checkpoint") as started:
        wait(started, lambda: visible(out) == 4_000, "the next one goes on")


def test_a_stop_of_the_region_ends_the_query_in_order(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    out, sink = tmp_path / "out", region_sink(ParquetDirectory(tmp_path / "out"), running_sum())
    north, region = stream(spark, bootstrap, topic, "north"), f"region-{topic}"
    produce_numbers(bootstrap, topic, PARTITIONS, 1_000)
    with query(north, sink, tmp_path / "checkpoint") as started:
        wait(started, lambda: visible(out) > 0, "it has begun")
        asyncio.run(ask(region, {"bootstrap_servers": bootstrap}, STOP, timeout_s=120.0))
        assert started.awaitTermination(120)
        assert started.exception() is None
    with query(north, sink, tmp_path / "checkpoint") as started:
        wait(started, lambda: visible(out) == 1_000, "the next run goes on")


def plain(frame: DataFrame, _batch_id: int) -> None:
    frame.collect()


def twice(sink: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Give a batch to a sink in two parts."""

    def write(frame: DataFrame, batch_id: int) -> None:
        sink(frame.filter("offset % 2 = 0"), batch_id)
        sink(frame.filter("offset % 2 = 1"), batch_id)

    return write


def test_a_batch_in_two_parts_is_refused(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """The second part would count as written with the first."""
    produce_numbers(bootstrap, topic, PARTITIONS, 100)
    given = options(bootstrap, topic, kafka__group__id="of-the-table")
    second = spark.readStream.format("kohort").options(**given).load()
    cases: list[tuple[DataFrame, Callable[[DataFrame, int], None]]] = [
        (stream(spark, bootstrap, topic, "north"), region_sink(ParquetDirectory(tmp_path / "out"))),
        (second, DeltaAppend(tmp_path / "table", "g")),
    ]
    for number, (frame, sink) in enumerate(cases):
        writer = frame.writeStream.foreachBatch(twice(sink))
        writer = writer.option("checkpointLocation", str(tmp_path / str(number)))
        with pytest.raises(StreamingQueryException, match="called twice for batch 0 of the query"):
            writer.trigger(availableNow=True).start().awaitTermination(120)


def test_what_a_query_is_refused_for(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    north = stream(spark, bootstrap, topic, "north")
    second = spark.readStream.format("kohort").options(**options(bootstrap, topic)).load()
    sink = region_sink(ParquetDirectory(tmp_path / "out"))
    columns = ("topic", "partition", "offset")
    cases: list[tuple[DataFrame, Callable[[DataFrame, int], None], str]] = [
        (north, plain, r"writes with foreachBatch\(kohort.spark.region_sink"),
        (north.select("value"), sink, "lacks topic, partition, offset"),
        (north.dropDuplicates([*columns]), sink, "keeps state of Spark's own"),
        (north.groupBy("key").count(), sink, "keeps state of Spark's own"),
        (north.select(*columns).union(second.select(*columns)), sink, "has 2 sources"),
    ]
    for number, (frame, writes, problem) in enumerate(cases):
        writer = frame.writeStream.foreachBatch(writes)
        writer = writer.option("checkpointLocation", str(tmp_path / str(number)))
        writer = writer.outputMode("update")
        with pytest.raises(StreamingQueryException, match=problem):
            writer.trigger(availableNow=True).start().awaitTermination(120)
    assert not (tmp_path / "out").exists()
