"""Spark into Kafka: the writer `kohort` compared with Spark's own connector, on a real Kafka.

Both write the same rows, keys of 12 bytes and values of 100, from a cached DataFrame of four
partitions in `local[2]` into a topic of four. Java, Maven and `make test` are needed once.

    python benchmarks/spark_writer.py [--records N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from benchmarks.spark_source import (  # noqa: E402  # as above
    NAMES,
    OURS,
    PARTITIONS,
    THEIRS,
    fetch_connector,
    session,
)
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUE_BYTES = 100
TARGET = 1.0


def rows(spark: SparkSession, records: int) -> DataFrame:
    """Return the rows, ready in memory: creating them is not measured."""
    frame = spark.range(0, records, 1, PARTITIONS).selectExpr(
        "lpad(cast(id AS string), 12, '0') AS key", f"repeat('v', {VALUE_BYTES}) AS value"
    )
    frame.cache().count()
    return frame


class Save(NamedTuple):
    """The topic of the rows, and the duration of `save()`, without creating the topic."""

    topic: str
    seconds: float


class Topics:
    """Creates a topic for each run, and deletes the topic of the previous run.

    Args:
        bootstrap: Address of the broker.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._numbers = itertools.count()

    def new(self) -> str:
        """Return the name of a new topic."""
        number = next(self._numbers)
        name = f"records-{number}"
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        if number:
            old = f"records-{number - 1}"
            self._admin.delete_topics([old])[old].result(30)
        return name

    def count(self, topic: str) -> int:
        """Return how many records a topic has."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "counts"})
        try:
            return sum(
                consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
                for number in range(PARTITIONS)
            )
        finally:
            consumer.close()


def run(options: argparse.Namespace, frame: DataFrame, bootstrap: str) -> harness.Result:
    """Measure both sides in turn."""
    topics = Topics(bootstrap)

    def write(source: str) -> Save:
        topic = topics.new()
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
        start = time.perf_counter()
        frame.write.format(source).options(**given).mode("append").save()
        return Save(topic, time.perf_counter() - start)

    def check(save: object) -> None:
        assert isinstance(save, Save)
        found = topics.count(save.topic)
        if found != options.records:
            raise AssertionError(f"{found} records instead of {options.records}")

    def seconds(save: object) -> float:
        assert isinstance(save, Save)
        return save.seconds

    def side(source: str) -> harness.Side:
        return harness.Side(NAMES[source], lambda: write(source), options.records, check, seconds)

    result = harness.measure([side(OURS), side(THEIRS)], options.rounds, "rows")
    result.expect("times Spark's own", result.ratio(NAMES[OURS], NAMES[THEIRS]), TARGET)
    return result


def main() -> int:
    """Run the benchmark; return 1 if a target was missed."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=5)
    parser.add_argument("--records", type=int, default=2_000_000)
    options = parser.parse_args()
    # PySpark says so about every pandas since 3, at every use
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    heap: Mapping[str, str] = {"log.segment.bytes": str(1 << 30)}
    jars = fetch_connector()
    with (
        tempfile.TemporaryDirectory(prefix="kohort-benchmark-") as folder,
        RealKafka(Path(folder), heap, jvm_options=("-Xmx1g",)) as kafka,
        session(jars, "local[2]") as spark,
    ):
        result = run(options, rows(spark, options.records), kafka.bootstrap_servers)
    return harness.report("Spark into Kafka, local[2]", result, options.json)


if __name__ == "__main__":
    sys.exit(main())
