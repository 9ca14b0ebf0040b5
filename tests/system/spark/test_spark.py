"""Whole queries in one Spark session: the promises of docs/spark.md where Spark itself calls."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from deltalake import DeltaTable

from kohort.spark import DeltaAppend, drain
from tests.docs.test_readme import python_blocks
from tests.real_kafka.broker import RealKafka
from tests.real_kafka.foreign import delete_before, new_topic
from tests.spark.playing import PROTOCOLS, committed, describe, options, produce
from tests.spark.sessions import MARKS, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = MARKS

Batch = Callable[["DataFrame", int], None]


spark = pytest.fixture(scope="module")(session)


class Application:
    """One query of the group that appends to the table, with its own checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        bootstrap: str,
        topic: str,
        home: Path,
        protocol: str = "eager",
    ) -> None:
        self.table = home / "table"
        self._done = threading.Condition()
        self._checkpoint = home / name
        self._name = name
        settings = options(bootstrap, topic, protocol, kafka__client__id=name)
        if protocol != "consumer":  # the broker's to say
            settings["kafka.session.timeout.ms"] = "6000"
        self._stream = spark.readStream.format("kohort").options(**settings).load()
        self.append = DeltaAppend(self.table, f"group-of-{topic}")

    def start(self, batch: Batch | None = None, *, available_now: bool = False) -> StreamingQuery:
        rows = self._stream.selectExpr("topic", "partition", "offset", "cast(value as string) v")

        def write(frame: DataFrame, batch_id: int) -> None:
            (batch or self.append)(frame, batch_id)
            with self._done:
                self._done.notify_all()

        writer = (
            rows.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self._checkpoint))
            .queryName(self._name)
        )
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime="0 seconds").start()

    def read_all_now(self) -> None:
        assert self.start(available_now=True).awaitTermination(60)

    def wait_for_rows(self, count: int) -> None:
        """Wait until this query's batches, and others' before them, have brought so many rows."""
        with self._done:
            while not (self.table.exists() and rows_of(self.table).total() >= count):
                assert self._done.wait(60)


@pytest.fixture
def application(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
) -> Iterator[Callable[[str], Application]]:
    """Makes queries of one group; its protocol is the parameter, eager by default."""
    protocol: str = getattr(request, "param", "eager")
    yield lambda name: Application(spark, name, bootstrap, topic, tmp_path, protocol)
    for query in spark.streams.active:
        query.stop()


def rows_of(table: Path) -> Counter[tuple[int, int]]:
    rows = DeltaTable(table).to_pyarrow_table(columns=["partition", "offset"]).to_pylist()
    return Counter((row["partition"], row["offset"]) for row in rows)


def expected(counts: dict[int, int]) -> Counter[tuple[int, int]]:
    return Counter((p, offset) for p, count in counts.items() for offset in range(count))


def test_batch_read_with_headers(spark: SparkSession, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, {0: 3, 1: 2})
    settings = {**options(bootstrap, topic), "includeHeaders": "true"}
    frame = spark.read.format("kohort").options(**settings).load()
    assert frame.columns[-2:] == ["timestampType", "headers"]
    rows = frame.orderBy("partition", "offset").collect()
    assert [(r.partition, r.offset, bytes(r.value), bytes(r.key)) for r in rows] == [
        (p, o, b"value %d" % o, b"key") for p, n in {0: 3, 1: 2}.items() for o in range(n)
    ]
    assert {row.headers for row in rows} == {None}


def test_column_types_and_instants_survive(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    frame = spark.sql(
        "select 't' topic, 0 partition, 7L offset, timestamp'2013-01-01 05:00:00.25' at, "
        "date'2013-01-01' day, cast(1.5 as decimal(10,2)) price, array(1, null) few, "
        "named_struct('a', 'x', 'b', true) pair, cast(null as double) none, X'00FF' raw"
    )
    DeltaAppend(tmp_path, "g")(frame, 0)
    spark.conf.unset("spark.sql.session.timeZone")
    row = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()[0]
    assert row == {
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "at": datetime(2013, 1, 1, 10, 0, 0, 250_000, tzinfo=UTC),
        "day": date(2013, 1, 1),
        "price": Decimal("1.50"),
        "few": [1, None],
        "pair": {"a": "x", "b": True},
        "none": None,
        "raw": b"\x00\xff",
    }


def test_a_frame_without_offsets_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs the columns topic, partition, offset"):
        DeltaAppend(tmp_path, "g")(spark.range(1), 0)


def test_a_wrong_option_is_named_when_loading(spark: SparkSession, bootstrap: str) -> None:
    from pyspark.errors import AnalysisException

    settings = {**options(bootstrap, "t"), "startingOfsets": "earliest"}
    with pytest.raises(AnalysisException, match="did you mean startingOffsets"):
        spark.readStream.format("kohort").options(**settings).load()


def test_available_now_resumes_from_the_checkpoint(
    application: Callable[[str], Application], bootstrap: str, topic: str
) -> None:
    north = application("north")
    produce(bootstrap, topic, {0: 20, 1: 10})
    north.read_all_now()
    assert rows_of(north.table) == expected({0: 20, 1: 10})
    produce(bootstrap, topic, {0: 5, 2: 1})
    north.read_all_now()
    assert rows_of(north.table) == expected({0: 25, 1: 10, 2: 1})
    assert committed(bootstrap, topic, [0, 1, 2, 3]) == {0: 25, 1: 10, 2: 1, 3: 0}


@pytest.mark.parametrize("application", PROTOCOLS, indirect=True)
def test_two_queries_share_a_group_and_drain(
    application: Callable[[str], Application], bootstrap: str, topic: str
) -> None:
    north, south = application("north"), application("south")
    counts = dict.fromkeys(range(4), 50)
    produce(bootstrap, topic, counts)
    first = north.start()
    north.wait_for_rows(200)
    second = south.start()
    while partitions_of_members(bootstrap, topic) != [2, 2]:
        assert first.isActive, first.exception()
        assert second.isActive, second.exception()
    produce(bootstrap, topic, counts)
    while rows_of(north.table).total() < 400:
        assert first.isActive, first.exception()
        assert second.isActive, second.exception()
    drain(second)
    drain(first)
    assert rows_of(north.table) == expected(dict.fromkeys(range(4), 100))
    assert committed(bootstrap, topic, range(4)) == dict.fromkeys(range(4), 100)
    assert south.append.last_batch is not None


def partitions_of_members(bootstrap: str, topic: str) -> list[int]:
    members = describe(bootstrap, topic).members
    return [len(member.assignment.topic_partitions) for member in members]


@pytest.mark.parametrize("application", ["eager", "consumer"], indirect=True)
def test_killed_between_sink_and_commit_each_row_is_there_once(
    application: Callable[[str], Application], bootstrap: str, topic: str
) -> None:
    """The batch is in the table; neither Spark's log nor the group ever hears of it."""
    north, south = application("north"), application("south")
    produce(bootstrap, topic, {0: 30, 3: 5})

    def append_and_die(frame: DataFrame, batch_id: int) -> None:
        north.append(frame, batch_id)
        for process in psutil.Process().children(recursive=True):
            if any("streaming_source_runner" in word for word in process.cmdline()):
                os.kill(process.pid, signal.SIGKILL)
        raise RuntimeError("killed")

    query = north.start(append_and_die)
    with pytest.raises(Exception, match="killed"):
        query.awaitTermination(60)
    assert committed(bootstrap, topic, [0, 3]) == {0: 0, 3: 0}
    while describe(bootstrap, topic).members:
        pass
    produce(bootstrap, topic, {0: 10})
    south.read_all_now()
    assert south.append.last_batch is not None
    assert (south.append.last_batch.rows_read, south.append.last_batch.rows_dropped) == (45, 35)
    north.read_all_now()
    assert rows_of(north.table) == expected({0: 40, 3: 5})


def test_the_example_of_the_readme(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """The README's Spark block, with this test's addresses in the place of the reader's."""
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    (code,) = [code for code in python_blocks(readme) if "readStream" in code]
    for placeholder, real in {
        "localhost:9092": bootstrap,
        '"flights"': f'"{topic}"',
        '"delays"': f'"{topic}-group"',
        "/shared/flights": str(tmp_path / "table"),
        "/shared/ck": str(tmp_path / "ck"),
    }.items():
        assert placeholder in code
        code = code.replace(placeholder, real)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(code, "README.md", "exec"), names)
    query = names["query"]
    try:
        # `latest` is where a new group starts: records count from when the group has a position.
        deadline = time.monotonic() + 60
        query.processAllAvailable()
        while not rows_of(tmp_path / "table") and time.monotonic() < deadline:
            produce(bootstrap, topic, {0: 10, 3: 10})
            query.processAllAvailable()
        assert set(rows_of(tmp_path / "table").values()) == {1}
    finally:
        query.stop()


def test_a_schema_with_fewer_columns_is_read(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, {0: 3, 1: 1})
    settings = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}

    def reader() -> DataFrameReader:  # one that was given a schema keeps it
        return spark.read.format("kohort").options(**settings)

    chosen = reader().schema("offset bigint, value binary").load()
    assert sorted(tuple(row) for row in chosen.collect()) == [
        (0, b"value 0"),
        (0, b"value 0"),
        (1, b"value 1"),
        (2, b"value 2"),
    ]
    assert reader().schema("value binary").load().count() == 4
    with pytest.raises(Exception, match="leave NOT NULL out"):
        reader().schema("offset bigint not null").load().count()
    assert reader().option("columns", "partition").load().distinct().count() == 2


def test_tasks_are_as_many_as_the_options_say(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, {0: 40, 1: 2, 2: 2})
    reader = spark.read.format("kohort").options(
        **{"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    )
    assert reader.load().rdd.getNumPartitions() == 1
    split = reader.option("minPartitions", "8").load()
    assert split.rdd.getNumPartitions() == 8
    assert split.count() == 44


def test_lost_records_are_an_error_of_the_query_or_passed_over(
    spark: SparkSession, real_kafka: RealKafka
) -> None:
    servers = real_kafka.bootstrap_servers
    topic = new_topic(servers)
    produce(servers, topic, {0: 10})
    reader = spark.read.format("kohort").options(
        **{"kafka.bootstrap.servers": servers, "subscribe": topic}
    )
    strict = reader.load().select("offset")
    lenient = reader.option("failOnDataLoss", "false").load().select("offset")
    planned = [frame.rdd for frame in (strict, lenient)]
    assert [each.getNumPartitions() for each in planned] == [1, 1]
    delete_before(servers, topic, 4)
    with pytest.raises(Exception, match=f"{topic}-0 offsets 0 to 10: .*set failOnDataLoss=false"):
        planned[0].collect()
    assert [row[0] for row in planned[1].collect()] == [4, 5, 6, 7, 8, 9]
