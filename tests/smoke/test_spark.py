"""Spark beside the embedded broker: the source, the writer, Delta tables, SQL and a restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kohort.spark import append, drain
from tests.client.producer_scenarios import read_messages
from tests.delta.rows import contents
from tests.spark.playing import committed, describe, once, options, produce
from tests.spark.sessions import MARKS, PATIENCE_S, until
from tests.system.spark.test_sql import ends_of_group, flights, table

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["flights", "table"]

pytestmark = [*MARKS, pytest.mark.counts_records]


def test_a_batch_reads_all_that_was_produced(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, {0: 3, 1: 2})
    frame = spark.read.format("kohort").options(**options(bootstrap, topic)).load()
    found = frame.orderBy("partition", "offset").collect()
    assert [(row.topic, row.partition, bytes(row.key), bytes(row.value)) for row in found] == [
        (topic, p, b"key", b"value %d" % number) for p, n in [(0, 3), (1, 2)] for number in range(n)
    ]


def test_librdkafka_reads_what_spark_has_written(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    frame = spark.range(0, 200, 1, 2).selectExpr(
        "concat('key ', id) key",
        "concat('value ', id) value",
        "cast(id % 4 AS int) partition",
        "array(named_struct('key', 'half', 'value', cast(string(id div 2) AS binary))) headers",
    )
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "includeHeaders": "true"}
    frame.write.format("kohort").options(**given).mode("append").save()
    found = Counter(
        (number, each.key(), each.value(), *(each.headers() or ()))
        for number in range(4)
        for each in read_messages(bootstrap, topic, number)
    )
    assert found == Counter(
        (number % 4, b"key %d" % number, b"value %d" % number, ("half", b"%d" % (number // 2)))
        for number in range(200)
    )


def test_a_topic_is_a_table_of_sql_that_is_queried_and_followed(
    spark: SparkSession, flights: str, table: ModuleType, tmp_path: Path
) -> None:
    assert table.count_by_partition(spark) == {0: 3, 1: 2}
    assert table.follow(spark, str(tmp_path)) == 5
    assert ends_of_group(flights, "flights-by-sql") == {0: 3, 1: 2}


class Appender:
    """A query from a topic to a Delta table, which may be started again."""

    def __init__(self, rows: DataFrame, home: Path) -> None:
        self.table = home / "table"
        self._rows = rows
        self._checkpoint = home / "checkpoint"

    def start(self, *, available_now: bool = False) -> StreamingQuery:
        return append(
            self._rows, self.table, checkpoint=self._checkpoint, available_now=available_now
        )

    def until(self, counts: Mapping[int, int], query: StreamingQuery) -> None:
        """Wait until the query has brought the first `counts` records of each partition."""

        def are_there() -> bool:
            assert query.isActive, query.exception()
            return self.has(counts)

        until(are_there, f"rows {counts}")

    def has(self, counts: Mapping[int, int]) -> bool:
        """Whether the table has the first `counts` records of each partition, each once."""
        if not DeltaTable.is_deltatable(str(self.table)):
            return False
        return once([(row[1], row[2]) for row in contents(self.table).elements()], counts)


@pytest.fixture
def appender(
    request: pytest.FixtureRequest, spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> Iterator[Appender]:
    """A query of the test's own group; the protocol is the parameter, KIP-848's by default."""
    settings = options(bootstrap, topic, getattr(request, "param", "consumer"))
    yield Appender(spark.readStream.format("kohort").options(**settings).load(), tmp_path)
    for query in spark.streams.active:
        query.stop()


def test_a_query_is_a_member_of_its_group_and_reads_each_record_once(
    appender: Appender, bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, {0: 20, 1: 10, 3: 5})
    query = appender.start()
    appender.until({0: 20, 1: 10, 3: 5}, query)
    (member,) = describe(bootstrap, topic).members
    assert {each.partition for each in member.assignment.topic_partitions} == {0, 1, 2, 3}
    produce(bootstrap, topic, {0: 5, 2: 7})
    appender.until({0: 25, 1: 10, 2: 7, 3: 5}, query)
    drain(query)
    assert appender.has({0: 25, 1: 10, 2: 7, 3: 5})
    assert committed(bootstrap, topic, range(4)) == {0: 25, 1: 10, 2: 7, 3: 5}


def test_a_query_goes_on_from_its_checkpoint_and_nothing_is_lost_or_there_twice(
    appender: Appender, bootstrap: str, topic: str
) -> None:
    """It is stopped in the midst of its work, and more is produced until it comes back."""
    produce(bootstrap, topic, dict.fromkeys(range(4), 20))
    first = appender.start()
    appender.until(dict.fromkeys(range(4), 20), first)
    produce(bootstrap, topic, dict.fromkeys(range(4), 20))
    first.stop()
    until(lambda: not describe(bootstrap, topic).members, "the query has left its group")
    produce(bootstrap, topic, {0: 5, 3: 7})
    second = appender.start()
    appender.until({0: 45, 1: 40, 2: 40, 3: 47}, second)
    drain(second)
    assert appender.has({0: 45, 1: 40, 2: 40, 3: 47})
    assert committed(bootstrap, topic, range(4)) == {0: 45, 1: 40, 2: 40, 3: 47}


@pytest.mark.parametrize("appender", ["eager"], indirect=True)
def test_a_query_that_reads_what_is_there_commits_it_and_reads_the_rest_next_time(
    appender: Appender, bootstrap: str, topic: str
) -> None:
    for end in (20, 40):
        produce(bootstrap, topic, {0: 20, 2: 20})
        assert appender.start(available_now=True).awaitTermination(PATIENCE_S)
        assert appender.has({0: end, 2: end})
        assert committed(bootstrap, topic, range(4)) == {0: end, 1: 0, 2: end, 3: 0}
