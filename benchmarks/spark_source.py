"""Kafka into Spark: the source `kohort` beside Spark's own Kafka connector, on a real Kafka.

Both read the same records of four partitions in `local[2]` and answer with their number and the sum
of the lengths of their values. Java, Maven and `make test` are needed once: Kafka's jars are those
of the tests, Spark's connector is fetched here.

    python benchmarks/spark_source.py [--records N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
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
from kohort.spark import KohortDataSource, session_config  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POM = ROOT / "benchmarks" / "spark_connector.xml"
JARS = ROOT / "build" / "spark-connector"
PARTITIONS = 4
VALUE_BYTES = 100
TOPIC = "records"
GROUP = "benchmark"
OURS, THEIRS = "kohort", "kafka"
NAMES = {OURS: "kohort", THEIRS: "Spark's own connector"}
TARGET = 2.0


def fetch_connector() -> str:
    """Fetch Spark's connector once; return its jars as Spark's setting wants them."""
    if not JARS.exists() or not any(JARS.iterdir()):
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        maven = shutil.which("mvn") or "mvn"
        subprocess.run([maven, "--quiet", "--batch-mode", "--file", str(POM), *goal], check=True)
    return ",".join(str(jar) for jar in sorted(JARS.glob("*.jar")))


def fill(bootstrap: str, records: int) -> None:
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
    value = bytes(range(VALUE_BYTES))
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
def session(jars: str) -> Iterator[SparkSession]:
    """Start Spark with both sources."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kohort-benchmark").master("local[2]")
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
    try:
        yield spark
    finally:
        spark.stop()


def read(spark: SparkSession, source: str, bootstrap: str) -> tuple[int, int]:
    """Count the records and sum the lengths of their values."""
    from pyspark.sql.functions import count, length, lit
    from pyspark.sql.functions import sum as total

    frame = (
        spark.read.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .load()
    )
    row = frame.agg(count(lit(1)), total(length("value"))).collect()[0]
    return int(row[0]), int(row[1])


def run(options: argparse.Namespace, spark: SparkSession, bootstrap: str) -> harness.Result:
    """Measure both sides in turn."""
    expected = (options.records, options.records * VALUE_BYTES)

    def check(answer: object) -> None:
        if answer != expected:
            raise AssertionError(f"{answer} instead of {expected}")

    def side(source: str) -> harness.Side:
        return harness.Side(
            NAMES[source], lambda: read(spark, source, bootstrap), options.records, check
        )

    result = harness.measure([side(OURS), side(THEIRS)], options.rounds, "rows")
    result.expect("million rows/s", result.median(NAMES[OURS]) / 1e6, TARGET)
    result.expect("times Spark's own", result.ratio(NAMES[OURS], NAMES[THEIRS]), 1.0)
    return result


def main() -> int:
    """Run the benchmark; 1 when a target was missed."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=5)
    parser.add_argument("--records", type=int, default=5_000_000)
    options = parser.parse_args()
    # PySpark says so about every pandas since 3, at every use
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    heap: Mapping[str, str] = {"log.segment.bytes": str(1 << 30)}
    jars = fetch_connector()
    with (
        tempfile.TemporaryDirectory(prefix="kohort-benchmark-") as folder,
        RealKafka(Path(folder), heap, jvm_options=("-Xmx1g",)) as kafka,
        session(jars) as spark,
    ):
        fill(kafka.bootstrap_servers, options.records)
        result = run(options, spark, kafka.bootstrap_servers)
    return harness.report("Kafka into Spark, local[2]", result, options.json)


if __name__ == "__main__":
    sys.exit(main())
