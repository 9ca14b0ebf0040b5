"""A sink that is called twice for one batch would lose the rows of the second call."""

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import Row as SparkRow
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from kohort.delta.parquet import ArrowTask
from kohort.region import OperatorId, ParquetDirectory, RegionPartition
from kohort.region.work import Load
from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.completion.control import SOURCE
from kohort.spark.region import sink as region
from kohort.spark.region.ipc import Channel
from kohort.spark.region.work import SparkWork
from kohort.spark.writer.delta import DeltaAppend
from kohort.spark.writer.repeated_batches import BATCH_ID, RepeatedBatchError
from tests.delta.rows import Row, batch_of, contents, span

COLUMNS = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("value", StringType())
)


class Query:
    """A run of a query, as the JVM knows it."""

    def __init__(self) -> None:
        self.run = uuid.uuid4().hex
        self.batch = 1

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {"id": "query", "runId": self.run, "hasNext": False}
        return lambda: answers.get(name, self)

    def session(self) -> Any:
        names = {"sql.streaming.queryId": "query", BATCH_ID: str(self.batch)}
        queries = SimpleNamespace(values=lambda: [self])
        state = SimpleNamespace(activeStreamingQueries=lambda: queries)
        return SimpleNamespace(
            _jsparkSession=SimpleNamespace(sharedState=lambda: state),
            sparkContext=SimpleNamespace(getLocalProperty=names.get),
        )


class Frame:
    """Rows of a batch, without Spark."""

    columns = COLUMNS.names
    schema = COLUMNS

    def __init__(self, session: Any, rows: Sequence[Row]) -> None:
        self.sparkSession = session
        self.rows = rows

    def mapInArrow(self, task: ArrowTask, _schema: str) -> Any:  # noqa: N802  # Spark's name
        made = [row for out in task([batch_of(self.rows)]) for row in out.to_pylist()]
        return SimpleNamespace(collect=lambda: [SparkRow(**row) for row in made])


def even_and_odd(session: Any, first: int, end: int) -> tuple[Any, Any]:
    """Two filters of one batch."""
    rows = span(0, first, end)
    return Frame(session, rows[::2]), Frame(session, rows[1::2])


def test_a_second_append_of_one_batch_is_refused(tmp_path: Path) -> None:
    query, append = Query(), DeltaAppend(tmp_path, "g")
    even, odd = even_and_odd(query.session(), 0, 10)
    append(even, 1)
    for again in (append, DeltaAppend(tmp_path, "g")):
        with pytest.raises(RepeatedBatchError, match="called twice for batch 1 of the query"):
            again(odd, 1)
    query.batch = 2
    append(cast("Any", Frame(query.session(), span(0, 10, 12))), 2)
    assert contents(tmp_path) == Counter([*span(0, 0, 10)[::2], *span(0, 10, 12)])


def test_a_number_of_the_callers_own_does_not_matter(tmp_path: Path) -> None:
    query, append = Query(), DeltaAppend(tmp_path, "g")
    append(cast("Any", Frame(query.session(), span(0, 0, 3))), 0)
    query.batch = 2
    append(cast("Any", Frame(query.session(), span(0, 3, 5))), 0)
    assert contents(tmp_path) == Counter(span(0, 0, 5))


def test_a_batch_of_another_run_or_of_a_call_that_failed_is_taken(tmp_path: Path) -> None:
    append, whole = DeltaAppend(tmp_path, "g"), span(0, 0, 6)
    first = Query()

    class Failing(Frame):
        def mapInArrow(self, _task: ArrowTask, _schema: str) -> Any:  # noqa: N802  # Spark's name
            raise ConnectionError("an executor is gone")

    with pytest.raises(ConnectionError):
        append(cast("Any", Failing(first.session(), whole)), 1)
    append(cast("Any", Frame(first.session(), whole)), 1)
    append(cast("Any", Frame(Query().session(), whole)), 1)  # Spark repeats it after a restart
    assert contents(tmp_path) == Counter(whole)


def test_a_frame_of_no_query_may_come_again(tmp_path: Path) -> None:
    session = Query().session()
    session.sparkContext = SimpleNamespace(getLocalProperty=lambda _: None)
    append = DeltaAppend(tmp_path, "g")
    append(cast("Any", Frame(session, span(0, 0, 3))), 0)
    append(cast("Any", Frame(session, span(0, 3, 5))), 0)
    assert contents(tmp_path) == Counter(span(0, 0, 5))


def test_spark_connect_has_a_process_for_each_run(tmp_path: Path) -> None:
    append, session = DeltaAppend(tmp_path, "g"), SimpleNamespace()
    even, odd = even_and_odd(session, 0, 4)
    append(even, 1)
    with pytest.raises(RepeatedBatchError):
        append(odd, 1)
    append(cast("Any", Frame(session, span(0, 4, 6))), 2)


class Source:
    """A source with an open batch, which takes over what is handed over."""

    def __init__(self, directory: Path, out: ParquetDirectory) -> None:
        self.channel = Channel(directory)
        self.work = SparkWork(
            "r", OperatorId("north", "i"), out, lambda _: None, self.channel, keeps_state=False
        )
        self.partition = RegionPartition("t", "an-id", 0)
        self.work.obey(Load(self.partition, 1, 0, b""))
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def offer(self, end: int) -> Manifest:
        batch = self.work.offer({self.partition: end}, None, 1)
        assert batch is not None
        return batch

    def _serve(self) -> None:
        while not self.is_over.wait(0.01):
            for key, made in self.channel.handed():
                self.channel.answer(key, counts=self.work.take_over(key, made))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    directory = tmp_path / f"{SOURCE}{os.getpid()}-x"
    directory.mkdir()
    out = ParquetDirectory(tmp_path / "out")
    out.open("r", "an-id", 0)
    made = Source(directory, out)
    monkeypatch.setattr(region, "application_of_this_process", lambda: tmp_path)
    yield made
    made.is_over.set()
    made.thread.join()


def test_a_second_hand_over_of_one_batch_is_refused(
    source: Source, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sink = region.region_sink(ParquetDirectory(tmp_path / "out"))
    batches = [source.offer(10)]
    monkeypatch.setattr(region, "_batch_of", lambda _: batches[-1])
    query = Query()
    even, odd = even_and_odd(query.session(), 0, 10)
    sink(even, 1)
    with pytest.raises(RepeatedBatchError, match="region_sink of region r was called twice"):
        sink(odd, 1)
    sink(cast("Any", Frame(Query().session(), span(0, 0, 10))), 1)  # repeated after a restart
    batches.append(source.offer(12))
    query.batch = 2
    sink(cast("Any", Frame(query.session(), span(0, 10, 12))), 2)
    assert source.work.positions() == {source.partition: 12}
