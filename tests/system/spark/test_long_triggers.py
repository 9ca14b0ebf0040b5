"""A query whose next trigger is far away hands partitions over at once, in real Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.spark import install
from tests.spark.brokers import bootstrap
from tests.spark.playing import PROTOCOLS, Row, committed, options, produce
from tests.spark.sessions import MARKS, small_session, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["bootstrap"]
pytestmark = MARKS

EACH = 10
# Spark triggers at multiples of the interval since 1970: an hour would be over on the hour.
NEVER = "300000 days"
ALL = dict.fromkeys(range(4), EACH)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with small_session() as session:
        install(session)
        yield session


class Query:
    """A query that keeps the rows it has read."""

    def __init__(self, spark: SparkSession, settings: dict[str, str], folder: Path) -> None:
        self.rows: Counter[Row] = Counter()
        self._stream = spark.readStream.format("kohort").options(**settings).load()
        self._folder = folder

    def start(self, interval: str) -> StreamingQuery:
        writer = self._stream.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._folder))
        return writer.trigger(processingTime=interval).start()

    def _take(self, frame: DataFrame, _batch_id: int) -> None:
        self.rows.update((row.partition, row.offset) for row in frame.collect())


def owned(query: StreamingQuery) -> int:
    """How many partitions the last batch of a query names."""
    progress = query.lastProgress
    if progress is None:
        return 0
    end = json.loads(progress["sources"][0]["endOffset"])
    return sum(map(len, end["topics"].values()))


@pytest.mark.parametrize(
    ("protocol", "tells"),
    # Without `install` it takes half a minute: once is enough.
    [*((each, "install") for each in PROTOCOLS), ("consumer", "checkpointLocation")],
)
def test_a_second_query_gets_its_part_long_before_the_next_trigger(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    protocol: str,
    tells: str,
) -> None:
    def query(name: str) -> Query:
        settings = options(bootstrap, topic, protocol, kafka__client__id=name)
        folder = tmp_path / name
        if tells == "checkpointLocation":
            settings["checkpointLocation"] = str(folder)
        session = spark if tells == "install" else spark.newSession()
        return Query(session, settings, folder)

    produce(bootstrap, topic, ALL)
    first, second = query("first"), query("second")
    patient = first.start(NEVER)
    try:
        until(lambda: running(patient) and first.rows.total() == 4 * EACH, "the first batch")
        produce(bootstrap, topic, ALL)
        newcomer = second.start("1 second")
        try:
            until(lambda: running(newcomer) and second.rows.total() == 2 * EACH, "its part")
            until(lambda: running(newcomer) and owned(newcomer) == 2, "a batch of its part")
            until(has(bootstrap, topic, 2 * EACH, 2), "the offsets of the second query")
        finally:
            newcomer.stop()
        assert running(patient)
    finally:
        patient.stop()
    # nothing twice, and what is the first query's is for its next trigger
    assert set((first.rows + second.rows).values()) == {1}
    assert all(offset >= EACH for _, offset in second.rows)
    assert sorted(committed(bootstrap, topic, range(4)).values()) == [
        EACH,
        EACH,
        2 * EACH,
        2 * EACH,
    ]


def running(query: StreamingQuery) -> bool:
    """Whether a query goes on; one that has failed raises its error."""
    failure = query.exception()
    if failure is not None:
        raise failure
    return query.isActive


def has(bootstrap: str, topic: str, offset: int, count: int) -> Callable[[], bool]:
    """Whether so many partitions are committed up to an offset."""
    return lambda: list(committed(bootstrap, topic, range(4)).values()).count(offset) == count
