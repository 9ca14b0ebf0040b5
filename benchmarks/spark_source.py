"""Kafka into Spark: the source `kohort` beside Spark's own Kafka connector, on a real Kafka.

Both read the same records of four partitions and answer with their number and the sum of the
lengths of their values. The third side is the floor: a Python source with ready Arrow batches, in
the same plan. Java, Maven and `make test` are needed once: Kafka's jars are those of the tests,
Spark's connector is fetched here.

    python benchmarks/spark_source.py [--records N] [--value-bytes N] [--master local[2]]
                                      [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from benchmarks.spark_floor import FloorDataSource  # noqa: E402  # as above
from kohort.spark import KohortDataSource, session_config  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POM = ROOT / "benchmarks" / "spark_connector.xml"
JARS = ROOT / "build" / "spark-connector"
PARTITIONS = 4
TOPIC = "records"
GROUP = "benchmark"
OURS, THEIRS, FLOOR = "kohort", "kafka", "floor"
NAMES = {OURS: "kohort", THEIRS: "Spark's own connector", FLOOR: "ready Arrow batches"}
# The source may cost at most 15 % of the throughput that a Python source can reach.
OF_THE_FLOOR = 0.85
TIMES_THEIRS = 3.0


def fetch_connector() -> str:
    """Fetch Spark's connector once; return its jars in the form of Spark's setting."""
    return fetch_jars(POM, JARS)


def fetch_jars(pom: Path, folder: Path) -> str:
    """Fetch the jars that a POM names once; return them in the form of Spark's setting."""
    if not folder.exists() or not any(folder.iterdir()):
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        maven = shutil.which("mvn") or "mvn"
        subprocess.run([maven, "--quiet", "--batch-mode", "--file", str(pom), *goal], check=True)
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


def fill(bootstrap: str, records: int, value_bytes: int) -> None:
    """Produce the records, the same number into each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    value = bytes(number % 256 for number in range(value_bytes))
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, key=b"%012d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the records could not be produced")


@contextmanager
def session(jars: str, master: str) -> Iterator[SparkSession]:
    """Start Spark with all sources."""
    from pyspark.sql import SparkSession

    # Spark's workers import the floor just like this program.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    )
    builder = SparkSession.builder.appName("kohort-benchmark").master(master)
    settings = {
        **session_config(),
        "spark.jars": jars,
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(KohortDataSource)
    spark.dataSource.register(FloorDataSource)
    try:
        yield spark
    finally:
        spark.stop()


def settings_of(
    source: str, bootstrap: str, options: argparse.Namespace, columns: str | None
) -> dict[str, str]:
    """Return the options of a source."""
    if source == FLOOR:
        return {
            "rows": str(options.records),
            "tasks": str(PARTITIONS),
            "valueBytes": str(options.value_bytes),
        }
    wanted = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}
    return wanted if columns is None else {**wanted, "columns": columns}


def read(spark: SparkSession, source: str, settings: Mapping[str, str]) -> tuple[int, int]:
    """Count the records and sum the lengths of their values."""
    from pyspark.sql.functions import count, length, lit
    from pyspark.sql.functions import sum as total

    frame = spark.read.format(source).options(**settings).load()
    row = frame.agg(count(lit(1)), total(length("value"))).collect()[0]
    return int(row[0]), int(row[1])


def run(options: argparse.Namespace, spark: SparkSession, bootstrap: str) -> harness.Result:
    """Measure all sides in turn."""
    expected = (options.records, options.records * options.value_bytes)

    def check(answer: object) -> None:
        if answer != expected:
            raise AssertionError(f"{answer} instead of {expected}")

    def side(source: str, name: str, columns: str | None = None) -> harness.Side:
        settings = settings_of(source, bootstrap, options, columns)
        return harness.Side(name, lambda: read(spark, source, settings), options.records, check)

    pruned = f"{NAMES[OURS]}, columns=value"
    sides = [side(source, name) for source, name in NAMES.items()]
    result = harness.measure([*sides, side(OURS, pruned, "value")], options.rounds, "rows")
    result.expect("of the floor", result.ratio(NAMES[OURS], NAMES[FLOOR]), OF_THE_FLOOR)
    result.expect("times Spark's own", result.ratio(NAMES[OURS], NAMES[THEIRS]), TIMES_THEIRS)
    result.expect("columns=value, times Spark's", result.ratio(pruned, NAMES[THEIRS]), TIMES_THEIRS)
    return result


def main() -> int:
    """Run the benchmark; return 1 if a target was missed."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=5)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    # PySpark says so about every pandas since 3, at every use
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    heap: Mapping[str, str] = {"log.segment.bytes": str(1 << 30)}
    jars = fetch_connector()
    with (
        tempfile.TemporaryDirectory(prefix="kohort-benchmark-") as folder,
        RealKafka(Path(folder), heap, jvm_options=("-Xmx1g",)) as kafka,
        session(jars, options.master) as spark,
    ):
        fill(kafka.bootstrap_servers, options.records, options.value_bytes)
        result = run(options, spark, kafka.bootstrap_servers)
    return harness.report(f"Kafka into Spark, {options.master}", result, options.json)


if __name__ == "__main__":
    sys.exit(main())
