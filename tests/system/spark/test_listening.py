"""When Spark says that a batch is over, and how the source hears of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark import cloudpickle

from kohort.spark import DrainError, ListeningError, drain, install
from kohort.spark.checkpoint.log import CheckpointLog
from kohort.spark.completion import drain as stopping
from kohort.spark.completion.control import Control, application_of_this_process, sources_in
from kohort.spark.completion.progress import progress
from tests.spark import hearing
from tests.spark.playing import committed, options, produce
from tests.spark.sessions import MARKS, small_session, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = MARKS

# No second trigger comes by itself.
# Spark triggers at multiples of the interval since 1970: an hour would be over on the hour.
NEVER: dict[str, Any] = {"processingTime": "300000 days"}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    # Spark's workers cannot import tests.
    cloudpickle.register_pickle_by_value(hearing)  # type: ignore[no-untyped-call]  # PySpark's copy is untyped
    with small_session() as session:
        session.dataSource.register(hearing.HearingSource)
        assert install(session) is install(session)
        yield session


@pytest.fixture(autouse=True)
def no_query_stays(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


class Heard:
    """A query over the source that writes down what it hears."""

    def __init__(self, spark: SparkSession, home: Path, name: str, batches: int) -> None:
        self.checkpoint = home / f"{name}-checkpoint"
        self._file = home / f"{name}-words"
        self._name = name
        self.stream = (
            spark.readStream.format("hearing")
            .option("batches", batches)
            .option("nonce", f"{home.name}-{name}")
            .option("file", str(self._file))
            .option("checkpoint", str(self.checkpoint))
            .load()
        )

    def start(
        self, batch: Callable[[DataFrame, int], None] | None = None, **trigger: Any
    ) -> StreamingQuery:
        writer = self.stream.writeStream.queryName(self._name)
        writer = writer.foreachBatch(batch) if batch else writer.format("noop")
        return self.run(writer, **trigger)

    def run(self, writer: Any, **trigger: Any) -> StreamingQuery:
        started: StreamingQuery = (
            writer.option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )
        return started

    def words(self, count: int) -> list[dict[str, object]]:
        """Wait for so many words."""
        until(lambda: len(self._read()) >= count, f"{count} words")
        return self._read()

    def _read(self) -> list[dict[str, object]]:
        text = self._file.read_text() if self._file.exists() else ""
        return [json.loads(line) for line in text.splitlines()]


def word(batch: int, *, is_stateful: bool = False) -> dict[str, object]:
    return {
        "batch": batch,
        "is_stateful": is_stateful,
        "has_listener": True,
        "was_committed": True,
    }


def fail_at(number: int) -> Callable[[DataFrame, int], None]:
    def write(frame: DataFrame, batch_id: int) -> None:
        if batch_id == number:
            raise ValueError("the sink is full")

    return write


def accept(frame: DataFrame, batch_id: int) -> None:
    pass


def test_a_source_hears_that_a_batch_is_over_long_before_the_next_trigger(
    spark: SparkSession, tmp_path: Path
) -> None:
    heard = Heard(spark, tmp_path, "long", 2)
    heard.start(**NEVER)
    assert heard.words(1) == [word(0)]


@pytest.mark.parametrize(("trigger", "batches"), [("availableNow", 3), ("once", 1)])
def test_a_source_hears_of_the_last_batch_of_a_query_that_ends(
    spark: SparkSession, tmp_path: Path, trigger: str, batches: int
) -> None:
    heard = Heard(spark, tmp_path, trigger, 3)
    when: dict[str, Any] = {trigger: True}
    assert heard.start(**when).awaitTermination(120)
    assert heard.words(batches) == [word(batch) for batch in range(batches)]


def test_two_queries_of_a_session_hear_of_their_own_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    one, other = (Heard(spark, tmp_path, name, 2) for name in ("one", "other"))
    for heard in (one, other):
        heard.start(**NEVER)
        assert heard.words(1) == [word(0)]
    assert one.words(1) == [word(0)]


def test_a_batch_that_failed_is_not_over_until_it_is_repeated(
    spark: SparkSession, tmp_path: Path
) -> None:
    heard = Heard(spark, tmp_path, "failing", 2)
    query = heard.start(fail_at(1))
    with pytest.raises(Exception, match="the sink is full"):
        query.awaitTermination(120)
    assert heard.words(1) == [word(0)]
    # The repeated batch has no latestOffset, so the listener cannot know where to say it.
    heard.start(accept, **NEVER)
    # The process of the first run may hear it as well, if it still waits.
    assert heard.words(2)[:2] == [word(0), word(1)]


def test_a_query_with_state_is_known_by_its_first_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    heard = Heard(spark, tmp_path, "counting", 1)
    counts = heard.stream.groupBy("batch").count()
    heard.run(counts.writeStream.format("noop").outputMode("complete"), **NEVER)
    assert heard.words(1) == [word(0, is_stateful=True)]


@pytest.mark.parametrize("version", ["1", "2"])
def test_sparks_checkpoint_says_the_same(spark: SparkSession, tmp_path: Path, version: str) -> None:
    heard = Heard(spark, tmp_path, "logged", 3)
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", version)
    try:
        query = heard.start(fail_at(1))
    finally:
        spark.conf.unset("spark.sql.streaming.offsetLog.formatVersion")
    with pytest.raises(Exception, match="the sink is full"):
        query.awaitTermination(120)
    log = CheckpointLog(str(heard.checkpoint))
    lines = [(heard.checkpoint / "offsets" / name).read_text().splitlines() for name in "01"]
    assert [line[0] for line in lines] == [f"v{version}"] * 2
    first, second = (json.loads(line[2][line[2].index("{") :]) for line in lines)
    assert first != second
    assert log.is_finished(first)
    assert not log.is_finished(second)


def test_a_query_is_drained_in_its_first_batch_also_when_that_is_a_repeated_one(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """Nothing is reported by then; and without records to come, nothing would be for long."""
    produce(bootstrap, topic, {0: 10})
    settings = options(bootstrap, topic, maxOffsetsPerTrigger="5")
    stream = spark.readStream.format("kohort").options(**settings).load()

    def start(batch: Callable[[DataFrame, int], None]) -> StreamingQuery:
        writer = stream.writeStream.foreachBatch(batch)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    with pytest.raises(Exception, match="the sink is full"):
        start(fail_at(1)).awaitTermination(120)
    name_the_checkpoint(tmp_path / "checkpoint" / "offsets" / "1")
    draining = threading.Event()

    def write(frame: DataFrame, batch_id: int) -> None:
        assert draining.wait(120)

    query = start(write)
    thread = threading.Thread(target=drain, args=[query])
    thread.start()
    until(lambda: is_freezing() or not query.isActive, "a freeze")
    draining.set()
    thread.join(120)
    assert not thread.is_alive()
    assert committed(bootstrap, topic, [0]) == {0: 10}


def test_a_query_is_drained_long_before_its_next_trigger(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, installed: bool
) -> None:
    produce(bootstrap, topic, {0: 10})
    stream = spark.readStream.format("kohort").options(**options(bootstrap, topic)).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(**NEVER).start()
    until(lambda: bool(query.lastProgress) or not query.isActive, "a batch")
    drain(query)
    assert not query.isActive
    assert committed(bootstrap, topic, [0]) == {0: 10}


def test_a_query_of_a_session_that_has_no_listener_is_drained_beside_one_that_has(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, {0: 10})
    other = spark.newSession()
    stream = other.readStream.format("kohort").options(**options(bootstrap, topic)).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(**NEVER).start()
    until(lambda: bool(query.lastProgress) or not query.isActive, "a batch")
    drain(query)
    assert committed(bootstrap, topic, [0]) == {0: 10}


def test_a_drain_does_not_wait_for_a_source_whose_process_has_ended(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, {0: 10})
    stream = spark.readStream.format("kohort").options(**options(bootstrap, topic)).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(**NEVER).start()
    until(lambda: bool(query.lastProgress) or not query.isActive, "a batch")
    (control,) = stopping._controls(query)
    process = int(control.name.split("-")[1])
    os.kill(process, signal.SIGKILL)
    with pytest.raises(DrainError, match=f"process {process} has ended"):
        drain(query)
    assert not query.isActive


@pytest.fixture(params=["with install", "without"])
def installed(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    """Whether a listener tells the sources that a batch is over."""
    if request.param == "with install":
        yield True
        return
    install(spark).close()
    yield False
    install(spark)


def test_a_query_of_another_source_has_nothing_to_drain(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    query = stream.writeStream.format("noop").trigger(**NEVER).start()
    until(lambda: bool(query.lastProgress) or not query.isActive, "a batch")
    with pytest.raises(DrainError, match="has no kohort source"):
        drain(query)
    assert not query.isActive


def test_a_batch_cannot_drain_its_own_query(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, {0: 10})
    said: list[str] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        with pytest.raises(DrainError) as refused:
            drain(next(each for each in spark.streams.active if each.name == "draining-itself"))
        said.append(str(refused.value))

    stream = spark.readStream.format("kohort").options(**options(bootstrap, topic)).load()
    writer = stream.writeStream.foreachBatch(write).queryName("draining-itself")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    until(lambda: bool(said) or not query.isActive, "a refusal")
    assert "in the query's own foreachBatch" in said[0]
    drain(query)
    assert committed(bootstrap, topic, [0]) == {0: 10}


def name_the_checkpoint(file: Path) -> None:
    """Give the offset a nonce, unless it has one: only then it is told from those of others."""
    *head, offset = file.read_text().split("\n")
    named = {"nonce": "ab12", **json.loads(offset)}
    file.write_text("\n".join([*head, json.dumps(named, sort_keys=True)]))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def is_freezing() -> bool:
    application = application_of_this_process()
    assert application is not None
    return any(list(source.glob("freeze-after-*")) for source in sources_in(application))


def test_how_far_a_query_is_can_be_asked_for_and_scraped(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, {0: 10, 1: 4})
    listening = install(spark, metrics_port=0)
    assert install(spark, metrics_port=0).metrics_port == listening.metrics_port
    settings = options(bootstrap, topic, maxOffsetsPerTrigger="7")
    stream = spark.readStream.format("kohort").options(**settings).load()
    writer = stream.writeStream.format("noop").queryName("scraped")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(**NEVER).start()
    until(lambda: query.lastProgress is not None, "the first batch")
    (found,) = progress(query)
    assert found["offsetsBehindLatest"] == {topic: {0: 5, 1: 2, 2: 0, 3: 0}}
    assert (found["maxOffsetsBehindLatest"], found["minOffsetsBehindLatest"]) == (5, 0)
    assert found["owned"] == {topic: [0, 1, 2, 3]}
    labels = f'operator="north",partition="0",query="scraped",topic="{topic}"'
    lag = f"kohort_spark_offsets_behind_latest{{{labels}}} 5.0"
    until(lambda: lag in scrape(listening.metrics_port), lag)


def scrape(port: int | None) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_a_session_of_spark_connect_is_refused_with_what_to_use_instead() -> None:
    class ConnectSession:
        """As that of Spark Connect, it has no JVM."""

    with pytest.raises(ListeningError, match="option checkpointLocation"):
        install(cast("SparkSession", ConnectSession()))


def test_this_process_is_no_source(spark: SparkSession) -> None:
    """The directory is named after the JVM, whose children the sources are."""
    control = Control()
    application = application_of_this_process()
    assert application is not None
    assert control.directory not in sources_in(application)
    assert not control.has_listener
    control.close()
