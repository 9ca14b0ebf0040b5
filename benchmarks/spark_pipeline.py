"""A complete pipeline: flights as JSON from a real Kafka, parsed, into a Delta table.

A million flights in eight partitions (zstd) are read in batches of 250,000 until none is left
(`availableNow`). One side is the source `kohort` with `append`, another Spark's own connector with
Delta Lake's own sink; the floor is `append` after a source with ready-made Arrow batches. Each run
uses a new Spark and a new table, and is measured from the start of the query to its end. All run on
PySpark 4.2.0, for which Delta Lake 4.4.0 is built: it is fetched once (450 MB), like the jars.
Java, Maven and `make test` are needed once.

    python benchmarks/spark_pipeline.py [--records N] [--rounds N] [--master M] [--json]
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from operator import truediv
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from benchmarks.spark_source import (  # noqa: E402  # as above
    FLOOR,
    NAMES,
    OURS,
    THEIRS,
    fetch_connector,
    fetch_jars,
)
from kohort.demo.flights import Flight, in_order, load_table  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SPARK = "4.2.0"
SPARK_FOLDER = ROOT / "build" / f"pyspark-{SPARK}"
DELTA_POM = ROOT / "benchmarks" / "delta_sink.xml"
DELTA_JARS = ROOT / "build" / "delta-sink"
PARTITIONS = 8
TOPIC = "flights"
BATCH = 250_000
FLIGHT = (
    "id long, month int, day int, carrier string, flight int, tailnum string, origin string, "
    "dest string, dep_delay double"
)
# Rows per Arrow batch of the floor; about as many as in a fetch of 4 MiB.
FLOOR_ROWS = 31_250
TIMES_THEIRS = 4.0
OF_THE_FLOOR = 0.85
FIRST_BATCH_TIMES_FLOOR = 1.3


class Run(NamedTuple):
    """The result of one run of a side.

    Attributes:
        seconds: From the start of the query to its end.
        first_s: From the start of the query to the end of its first batch.
        batches: Number of batches.
        rows: Number of rows in the table.
        ids: Sum of the ids in the table.
    """

    seconds: float
    first_s: float
    batches: int
    rows: int
    ids: int


# ------------------------------------------------------------------------------- one run of a side


def session(side: str, master: str, jars: str) -> SparkSession:
    """Start Spark for a side."""
    from pyspark.sql import SparkSession

    from benchmarks.spark_floor import FloorDataSource
    from kohort.spark import KohortDataSource, session_config

    settings = {
        **session_config(),
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    if side == THEIRS:
        settings |= {
            "spark.jars": jars,
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    builder = SparkSession.builder.appName(f"pipeline-{side}").master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(KohortDataSource)
    spark.dataSource.register(FloorDataSource)
    return spark


def parsed(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Return the stream of parsed flights with their position in the topic."""
    from pyspark.sql.functions import col, from_json

    reader = spark.readStream.format(options.side)
    if options.side == FLOOR:
        tasks = -(-BATCH // 50_000)  # as many as the kohort source uses
        reader = reader.options(path=options.ready, rows=str(BATCH), tasks=str(tasks))
    else:
        reader = (
            reader.option("kafka.bootstrap.servers", options.bootstrap)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(BATCH))
        )
    if options.side == OURS:
        reader = reader.option("kafka.group.id", Path(options.folder).name)
    flight = from_json(col("value").cast("string"), FLIGHT).alias("flight")
    rows = reader.load().select("topic", "partition", "offset", flight)
    return rows.select("topic", "partition", "offset", "flight.*")


def start(stream: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """Start the query of a side."""
    from kohort.spark import append

    table, checkpoint = f"{options.folder}/table", f"{options.folder}/checkpoint"
    if options.side != THEIRS:
        return append(stream, table, checkpoint=checkpoint, group_id="pipeline", available_now=True)
    writer = stream.writeStream.format("delta").option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start(table)


def run_side(options: argparse.Namespace) -> None:
    """Run a query to its end, and print the result as JSON."""
    from deltalake import DeltaTable

    spark = session(options.side, options.master, options.jars)
    stream = parsed(spark, options)
    begun = time.time()
    query = start(stream, options)
    query.awaitTermination()
    seconds = time.time() - begun
    first = query.recentProgress[0]
    at = datetime.datetime.fromisoformat(first["timestamp"]).timestamp()
    ids = DeltaTable(f"{options.folder}/table").to_pyarrow_table(columns=["id"])["id"].to_pylist()
    run = Run(
        seconds,
        at + first["durationMs"]["triggerExecution"] / 1000 - begun,
        len(query.recentProgress),
        len(ids),
        sum(ids),
    )
    print(json.dumps(run._asdict()))


# --------------------------------------------------------------------------------- all runs of all


def flights(count: int) -> Iterator[tuple[int, Flight]]:
    """Yield partitions and flights: the year repeatedly, up to the requested number."""
    year = list(in_order(load_table()))
    for number, flight in zip(range(count), itertools.cycle(year), strict=False):
        yield number % PARTITIONS, flight


def fill(bootstrap: str, records: int) -> None:
    """Produce the flights."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "compression.type": "zstd",
        }
    )
    for partition, flight in flights(records):
        while True:
            try:
                producer.produce(TOPIC, flight.value, key=flight.key, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the flights could not be produced")


def write_ready(path: Path, records: int) -> None:
    """Write the file of the floor: the same values as Arrow batches, partition by partition."""
    import pyarrow as pa

    from kohort.wire.records.arrow import SCHEMA

    by_partition: dict[int, list[Flight]] = {number: [] for number in range(PARTITIONS)}
    for partition, flight in flights(records):
        by_partition[partition].append(flight)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        most = max(map(len, by_partition.values()))
        for first, number in itertools.product(range(0, most, FLOOR_ROWS), range(PARTITIONS)):
            rows = by_partition[number][first : first + FLOOR_ROWS]
            writer.write(_ready_batch(rows, number, first, SCHEMA))


def _ready_batch(
    rows: Iterable[Flight], partition: int, first: int, schema: pa.Schema
) -> pa.RecordBatch:
    import pyarrow as pa

    given = [
        {
            "key": flight.key,
            "value": flight.value,
            "topic": TOPIC,
            "partition": partition,
            "offset": first + number,
            "timestamp": 0,
            "timestampType": 0,
        }
        for number, flight in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(given, schema=schema)


class Sides:
    """Runs each side in a separate process.

    Args:
        arguments: The arguments of every run.
        folder: Parent of a folder for each run.
    """

    def __init__(self, arguments: Mapping[str, str], folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self._numbers = itertools.count()
        self.firsts: dict[str, list[float]] = {}

    def run(self, side: str) -> Run:
        """Run one side once."""
        folder = self._folder / f"run-{next(self._numbers)}"
        folder.mkdir()
        given = {**self._arguments, "side": side, "folder": str(folder)}
        words = [word for key, value in given.items() for word in (f"--{key}", value)]
        done = subprocess.run(
            [sys.executable, __file__, *words],
            env={**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        run = Run(**json.loads(done.stdout.splitlines()[-1]))
        self.firsts.setdefault(side, []).append(run.first_s)
        return run


def python_path() -> str:
    """Return the PYTHONPATH of a run, with PySpark 4.2.0, this program and kohort."""
    return os.pathsep.join(str(folder) for folder in (SPARK_FOLDER, ROOT, ROOT / "src"))


def fetch_spark() -> None:
    """Fetch the PySpark for which Delta Lake's sink is built, only once."""
    if not (SPARK_FOLDER / "pyspark").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*pip, str(SPARK_FOLDER), f"pyspark=={SPARK}"], check=True)


def run(options: argparse.Namespace, sides: Sides) -> harness.Result:
    """Measure all sides in turn."""
    ids = sum(json.loads(flight.value)["id"] for _, flight in flights(options.records))

    def check(answer: object) -> None:
        assert isinstance(answer, Run)
        if (answer.rows, answer.ids) != (options.records, ids):
            raise AssertionError(f"{answer} instead of {options.records} rows, ids {ids}")

    def seconds(answer: object) -> float:
        assert isinstance(answer, Run)
        return answer.seconds

    def side(name: str) -> harness.Side:
        return harness.Side(NAMES[name], lambda: sides.run(name), options.records, check, seconds)

    result = harness.measure([side(name) for name in NAMES], options.rounds, "flights")
    result.expect("times Spark's own", result.ratio(NAMES[OURS], NAMES[THEIRS]), TIMES_THEIRS)
    result.expect("of the floor", result.ratio(NAMES[OURS], NAMES[FLOOR]), OF_THE_FLOOR)
    # the first run of each warms up
    firsts = {name: found[1:] for name, found in sides.firsts.items()}
    for name, found in firsts.items():
        result.note(f"first batch, {NAMES[name]}, s", statistics.median(found))
    times = statistics.median(map(truediv, firsts[OURS], firsts[FLOOR]))
    result.limit("first batch, times the floor", times, FIRST_BATCH_TIMES_FLOOR)
    return result


def main() -> int:
    """Run the benchmark; return 1 if a target was missed."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--master", default="local[2]")
    for name in ("side", "bootstrap", "folder", "ready", "jars"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run_side(options)
        return 0
    fetch_spark()
    jars = f"{fetch_connector()},{fetch_jars(DELTA_POM, DELTA_JARS)}"
    with (
        tempfile.TemporaryDirectory(prefix="kohort-benchmark-") as name,
        RealKafka(Path(name) / "kafka", jvm_options=("-Xmx1g",)) as kafka,
    ):
        folder = Path(name)
        fill(kafka.bootstrap_servers, options.records)
        write_ready(folder / "ready.arrow", options.records)
        arguments = {
            "bootstrap": kafka.bootstrap_servers,
            "ready": str(folder / "ready.arrow"),
            "jars": jars,
            "master": options.master,
        }
        result = run(options, Sides(arguments, folder))
    return harness.report(f"flights into a Delta table, {options.master}", result, options.json)


if __name__ == "__main__":
    sys.exit(main())
