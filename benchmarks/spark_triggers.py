"""Small batches: 40 records in 200 partitions, read by a running query, on a real Kafka.

Each side is a separate query, one after the other: the source `kohort`, Spark's own connector, and
the floor, a Python source with ready-made Arrow batches. It measures the time from the start of the
query to the end of its first batch, the time of each later trigger that reads 40 records, and the
share of a core that the source's process of an idle query uses. Java, Maven and `make test` are
needed once.

    python benchmarks/spark_triggers.py [--rounds N] [--triggers N] [--json]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from operator import truediv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from benchmarks.spark_floor import ready_batch  # noqa: E402  # as above
from benchmarks.spark_source import (  # noqa: E402  # as above
    FLOOR,
    NAMES,
    OURS,
    THEIRS,
    fetch_connector,
    session,
)
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "sparse"
PARTITIONS = 200
RECORDS = 40
IDLE_S = 10.0
DEADLINE_S = 120.0
# Name of the process in which Spark runs a Python source between batches.
SOURCE_PROCESS = "python_streaming_source_runner"
TIMES_FLOOR = 1.3
TIMES_THEIRS = 0.5
IDLE_PERCENT = 2.0
# Never set: used to wait between checks.
PAUSE = threading.Event()


class Bench:
    """Starts queries of each side on one topic.

    Args:
        spark: The session.
        bootstrap: Kafka's address.
        folder: For checkpoints and the floor's file.
    """

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self._numbers = itertools.count()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._ready = folder / "ready.arrow"
        with pa.OSFile(str(self._ready), "wb") as file:
            batch = ready_batch(RECORDS, 100)
            with pa.ipc.new_file(file, batch.schema) as writer:
                for _ in range(10_000):
                    writer.write_batch(batch)

    def renew(self) -> None:
        """Leave 40 records in the topic, so that each first batch has 40."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        # -1 stands for the end of a partition
        places = [TopicPartition(TOPIC, number, -1) for number in range(PARTITIONS)]
        end = time.monotonic() + DEADLINE_S
        while places:  # a new partition has no leader yet
            asked = admin.delete_records(places)
            places = [place for place, deleted in asked.items() if _refused(deleted, end)]
        self.produce()

    def produce(self) -> None:
        """Add a record to each of 40 partitions."""
        for number in range(RECORDS):
            partition = number * PARTITIONS // RECORDS
            self._producer.produce(TOPIC, bytes(100), b"key", partition)
        if self._producer.flush(DEADLINE_S):
            raise SystemExit("the records could not be produced")

    @contextmanager
    def query(self, side: str, interval: str) -> Iterator[StreamingQuery]:
        """Start a query with a separate group and checkpoint."""
        number = next(self._numbers)
        reader = self._spark.readStream.format(side).options(**self._options(side, number))
        writer = reader.load().writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(self._folder / f"checkpoint-{number}"))
        query = writer.trigger(processingTime=interval).start()
        try:
            yield query
        finally:
            query.stop()

    def _options(self, side: str, number: int) -> Mapping[str, str]:
        if side == FLOOR:
            return {"path": str(self._ready), "rows": str(RECORDS), "tasks": "1"}
        options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        return options if side == THEIRS else {**options, "kafka.group.id": f"group-{number}"}


def _refused(deleted: Future[Any], end: float) -> bool:
    try:
        deleted.result(DEADLINE_S)
    except KafkaException:
        if time.monotonic() > end:
            raise
        return True
    return False


def wait(condition: Callable[[], bool], query: StreamingQuery) -> None:
    """Wait until a condition holds; if a query fails, raise its error."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"nothing came of {query.id} within {DEADLINE_S:g} s")
        assert query.exception() is None, query.exception()
        PAUSE.wait(0.02)


def batches(query: StreamingQuery) -> list[Any]:
    """Return the batches with records that a query has finished."""
    return [each for each in query.recentProgress if each["numInputRows"]]


def rows(query: StreamingQuery) -> list[int]:
    """Return the number of records of each non-empty batch."""
    return [each["numInputRows"] for each in batches(query)]


def whole(query: StreamingQuery) -> list[Any]:
    """Return the batches after the first that began when all records had been written."""
    return [each for each in batches(query)[1:] if each["numInputRows"] == RECORDS]


def triggers(bench: Bench, side: str, count: int) -> tuple[float, list[float]]:
    """Return the seconds until the first batch, and of each trigger after it."""
    bench.renew()
    begun = time.monotonic()
    with bench.query(side, "1 second") as query:
        wait(lambda: bool(batches(query)), query)
        first = time.monotonic() - begun
        end = time.monotonic() + DEADLINE_S
        while len(whole(query)) < count:
            if time.monotonic() > end:
                raise SystemExit(f"{side}: no {count} batches of {RECORDS} records: {rows(query)}")
            known = sum(rows(query))
            if side != FLOOR:
                bench.produce()
            wait(lambda known=known: sum(rows(query)) >= known + RECORDS, query)  # type: ignore[misc]  # its default is the number
        return first, [each["durationMs"]["triggerExecution"] / 1000 for each in whole(query)]


def _is_source(process: psutil.Process) -> bool:
    try:
        return any(SOURCE_PROCESS in word for word in process.cmdline())
    except psutil.Error:  # it has ended
        return False


def idle_percent(bench: Bench) -> float:
    """Return the share of a core that the source's process uses while there is nothing to read."""
    with bench.query(OURS, "0 seconds") as query:
        wait(lambda: bool(batches(query)), query)
        (source,) = filter(_is_source, psutil.Process().children(recursive=True))
        source.cpu_percent()
        PAUSE.wait(IDLE_S)
        return float(source.cpu_percent())


def run(options: argparse.Namespace, bench: Bench) -> harness.Result:
    """Measure all sides in turn."""
    firsts: dict[str, list[float]] = {side: [] for side in NAMES}
    later: dict[str, list[float]] = {side: [] for side in NAMES}
    for number in range(options.rounds + 1):
        both = (OURS, FLOOR) if number % 2 == 0 else (FLOOR, OURS)
        for side in (THEIRS, "", *both):
            if not side:  # not measured: Spark's own connector leaves work for the next query
                triggers(bench, FLOOR, 1)
                continue
            first, each = triggers(bench, side, options.triggers)
            if number:  # the first round warms up
                firsts[side].append(first)
                later[side].append(statistics.median(each))
    result = harness.Result("triggers", {})
    for side, name in NAMES.items():
        result.note(f"trigger, {name}, s", statistics.median(later[side]))
        result.note(f"first batch, {name}, s", statistics.median(firsts[side]))
    for what, found in (("trigger", later), ("first batch", firsts)):
        of_floor = statistics.median(map(truediv, found[OURS], found[FLOOR]))
        result.limit(f"{what}, times the floor", of_floor, TIMES_FLOOR)
    of_theirs = statistics.median(map(truediv, later[OURS], later[THEIRS]))
    result.limit("trigger, times Spark's own", of_theirs, TIMES_THEIRS)
    result.limit("idle source, % of a core", idle_percent(bench), IDLE_PERCENT)
    return result


def main() -> int:
    """Run the benchmark; return 1 if a target was missed."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=5)
    parser.add_argument("--triggers", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    # PySpark says so about every pandas since 3, at every use
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    jars = fetch_connector()
    with (
        tempfile.TemporaryDirectory(prefix="kohort-benchmark-") as folder,
        RealKafka(Path(folder, "kafka")) as kafka,
        session(jars, options.master) as spark,
    ):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        result = run(options, Bench(spark, kafka.bootstrap_servers, Path(folder)))
    return harness.report("Small batches in Spark", result, options.json)


if __name__ == "__main__":
    sys.exit(main())
