"""Queries in a session without `install`: a group is shared only where the sink is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.spark import append, drain
from tests.spark.playing import committed, describe, options, produce
from tests.spark.sessions import MARKS, small_session, until
from tests.system.spark.test_spark import expected, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = MARKS

TEN = dict.fromkeys(range(4), 10)
TWENTY = dict.fromkeys(range(4), 20)


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    """One session for each test: what `append` puts into it stays there."""
    with small_session() as session:
        yield session
        for query in session.streams.active:
            query.stop()


def stream(spark: SparkSession, bootstrap: str, topic: str, name: str, **more: str) -> DataFrame:
    settings = options(bootstrap, topic, kafka__client__id=name, **more)
    frame = spark.readStream.format("kohort").options(**settings).load()
    return frame.selectExpr("topic", "partition", "offset")


def to_files(rows: DataFrame, home: Path, name: str, **more: str) -> StreamingQuery:
    writer = rows.writeStream.format("parquet").queryName(name)
    writer = writer.option("checkpointLocation", str(home / f"checkpoint-of-{name}"))
    return writer.trigger(processingTime="0 seconds").start(str(home / "out"))


def test_a_second_query_whose_sink_is_not_seen_is_refused_and_nothing_is_lost(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, TEN)
    to_files(stream(spark, bootstrap, topic, "north"), tmp_path, "north")
    until(lambda: committed(bootstrap, topic, range(4)) == TEN, "north's first batch")
    south = to_files(stream(spark, bootstrap, topic, "south"), tmp_path, "south")
    until(lambda: not south.isActive, "south to be refused")
    assert "SinkError" in str(south.exception())
    assert "kohort.spark.install(spark)" in str(south.exception())
    produce(bootstrap, topic, TEN)
    until(lambda: committed(bootstrap, topic, range(4)) == TWENTY, "north to go on alone")
    for query in spark.streams.active:
        query.stop()
    files = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter((row.partition, row.offset) for row in files) == expected(TWENTY)


def test_queries_that_append_share_a_group_without_more_ado(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    queries = [
        append(
            stream(spark, bootstrap, topic, name),
            tmp_path / "table",
            checkpoint=tmp_path / name,
            name=name,
        )
        for name in ("north", "south")
    ]
    until(lambda: len(describe(bootstrap, topic).members) == 2, "both members")
    produce(bootstrap, topic, TEN)
    until(lambda: committed(bootstrap, topic, range(4)) == TEN, "all to be read")
    for query in queries:
        drain(query)
    assert rows_of(tmp_path / "table") == expected(TEN)
