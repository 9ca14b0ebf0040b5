"""Spark's file sink skips batches whose numbers are taken; the group must not move on with them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort import Consumer
from kohort.spark import install
from kohort.types import TopicPartition
from tests.spark.playing import committed, describe, options, produce
from tests.spark.sessions import MARKS, small_session, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = MARKS

NOW: dict[str, Any] = {"availableNow": True}
# Spark triggers at multiples of the interval since 1970: an hour would be over on the hour.
NEVER: dict[str, Any] = {"processingTime": "300000 days"}
TEN = dict.fromkeys(range(4), 10)
TWENTY = dict.fromkeys(range(4), 20)
THIRTY = dict.fromkeys(range(4), 30)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with small_session() as session:
        install(session)
        yield session


@pytest.fixture(autouse=True)
def no_query_stays(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


class Files:
    """Queries of one group whose sinks are directories of files."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, home: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._topic = topic
        self._home = home

    def start(
        self, name: str, directory: str = "out", trigger: Mapping[str, Any] = NOW
    ) -> StreamingQuery:
        settings = options(self._bootstrap, self._topic, kafka__client__id=name)
        frame = self._spark.readStream.format("kohort").options(**settings).load()
        return (
            frame.selectExpr("partition", "offset")
            .writeStream.format("parquet")
            .queryName(name)
            .option("checkpointLocation", str(self.checkpoint(name)))
            .trigger(**trigger)
            .start(str(self._home / directory))
        )

    def run(self, name: str, directory: str = "out", trigger: Mapping[str, Any] = NOW) -> None:
        assert self.start(name, directory, trigger).awaitTermination(300)

    def refuse(self, name: str, problem: str) -> None:
        with pytest.raises(Exception, match=problem) as failed:
            self.start(name).awaitTermination(300)
        assert "SinkError" in str(failed.value)

    def checkpoint(self, name: str) -> Path:
        return self._home / f"checkpoint-of-{name}"

    def rows(self, *directories: str) -> Counter[tuple[int, int]]:
        found: Counter[tuple[int, int]] = Counter()
        for name in directories:
            frame = self._spark.read.parquet(str(self._home / name))
            found.update((row.partition, row.offset) for row in frame.collect())
        return found

    def committed(self) -> dict[int, int]:
        return committed(self._bootstrap, self._topic, range(4))


@pytest.fixture
def files(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> Files:
    return Files(spark, bootstrap, topic, tmp_path)


def expected(counts: dict[int, int]) -> Counter[tuple[int, int]]:
    return Counter((p, offset) for p, count in counts.items() for offset in range(count))


def test_a_second_query_with_the_directory_of_the_first_is_refused(
    files: Files, bootstrap: str, topic: str
) -> None:
    for _ in range(2):
        produce(bootstrap, topic, TEN)
        files.run("north")
    assert files.committed() == TWENTY
    produce(bootstrap, topic, TEN)
    files.refuse("south", "lists batches up to 1, so Spark's file sink has skipped batch 0")
    assert files.committed() == TWENTY
    # Spark's checkpoint says that the batch is over: the next run must not believe it.
    files.refuse("south", "listed that batch before the query began it")
    assert files.committed() == TWENTY
    files.run("west", "another")
    assert files.committed() == THIRTY
    assert files.rows("out", "another") == expected(THIRTY)


def test_a_new_checkpoint_with_the_old_directory_is_refused(
    files: Files, bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, TEN)
    files.run("north")
    shutil.rmtree(files.checkpoint("north"))
    produce(bootstrap, topic, TEN)
    files.refuse("north", "a new checkpoint and a new directory")
    assert files.committed() == TEN
    shutil.rmtree(files.checkpoint("north"))
    files.run("north", "new")
    assert files.rows("out", "new") == expected(TWENTY)
    assert files.committed() == TWENTY


def test_a_refused_member_leaves_the_group_long_before_its_next_trigger(
    files: Files, bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, TEN)
    files.run("north")
    produce(bootstrap, topic, TEN)
    files.start("south", trigger=NEVER)
    until(lambda: "refused" in notes(bootstrap, topic), "the note of the refusal")
    until(lambda: not describe(bootstrap, topic).members, "south to leave")
    assert files.committed() == TEN


def test_a_query_that_runs_once_is_not_committed_either(
    files: Files, bootstrap: str, topic: str
) -> None:
    """Spark asks nothing after its only batch, so it ends as if all were well."""
    produce(bootstrap, topic, TEN)
    files.run("north")
    produce(bootstrap, topic, TEN)
    files.run("south", trigger={"once": True})
    assert files.committed() == TEN


def test_two_queries_of_an_application_do_not_share_a_directory_whatever_their_batches(
    files: Files, bootstrap: str, topic: str
) -> None:
    """Queries in step may both find a list that is younger than their own batch."""
    produce(bootstrap, topic, TEN)
    north = files.start("north", trigger={"processingTime": "1 second"})
    until(lambda: files.committed() == TEN, "north's first batch")
    files.refuse("south", "of this application writes to .*/out too")
    produce(bootstrap, topic, TEN)
    until(lambda: files.committed() == TWENTY, "north to go on alone")
    north.stop()
    assert files.rows("out") == expected(TWENTY)


def notes(bootstrap: str, topic: str) -> str:
    with Consumer(bootstrap_servers=bootstrap, group_id=f"group-of-{topic}") as consumer:
        found = consumer.committed(*(TopicPartition(topic, number) for number in range(4)))
    return " ".join(each.metadata for each in found.values())
