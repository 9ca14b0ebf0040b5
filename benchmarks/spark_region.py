"""The cost of a consistent region for a Spark query, on a real Kafka.

The same query reads a topic to its end, alternately as an operator of a region with a checkpoint
every 5 s and with Spark's own file sink. A rate is measured from the first batch with records to
the end of the query, which in a region waits for the last checkpoint; the time until that batch is
reported separately. Java, Maven and `make test` are needed once.

    python benchmarks/spark_region.py [--records N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from benchmarks.spark_source import TOPIC, fetch_connector, fill, session  # noqa: E402  # as above
from kohort.region import ParquetDirectory  # noqa: E402  # as above
from kohort.spark import region_sink  # noqa: E402  # as above
from tests.real_kafka.broker import RealKafka  # noqa: E402  # as above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 10
TARGET = 0.95
SCHEMA = "partition int, offset long, length int"


def function() -> Any:  # noqa: ANN401  # by value: Spark's workers run another main program
    """Return the function of the region."""

    def rows(_place: Any, batches: Iterator[Any], state: dict[str, int]) -> Iterator[Any]:  # noqa: ANN401  # of the region
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            state["records"] = state.get("records", 0) + batch.num_rows
            columns = {name: batch[name] for name in ("partition", "offset")}
            lengths = pc.binary_length(batch["value"]).cast(pa.int32())
            yield pa.RecordBatch.from_pydict({**columns, "length": lengths})

    return rows


class Queries:
    """Runs the query, with and without a region."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path, records: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self._records = records
        self.starts: dict[str, list[float]] = {"with a region": [], "without": []}

    def _run(self, side: str, options: Mapping[str, str], writer: Any) -> float:  # noqa: ANN401  # foreachBatch's
        given = {
            "kafka.bootstrap.servers": self._bootstrap,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self._records // BATCHES),
            "kafka.group.id": f"group-{uuid.uuid4().hex[:8]}",
            **options,
        }
        frame = self._spark.readStream.format("kohort").options(**given).load()
        checkpoint = tempfile.mkdtemp(dir=self._folder)
        began = time.time()
        query = (
            frame.writeStream.foreachBatch(writer)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        ended = time.time()
        first = next(each for each in query.recentProgress if each.numInputRows)
        trigger = datetime.fromisoformat(first.timestamp).timestamp()
        reading = trigger + first.durationMs["latestOffset"] / 1000
        self.starts[side].append(reading - began)
        return ended - reading

    def region(self) -> float:
        """Return the duration as an operator of a region."""
        out = Path(tempfile.mkdtemp(dir=self._folder))
        sink = ParquetDirectory(out)
        name = f"region-{uuid.uuid4().hex[:8]}"
        took = self._run(
            "with a region",
            {"consistentRegion": name, "kafka.client.id": "one", "regionPeriod": "5s"},
            region_sink(sink, function()),
        )
        self._check(sum(pq.read_metadata(each).num_rows for each in sink.files()))
        return took

    def plain(self) -> float:
        """Return the duration without a region."""
        out = Path(tempfile.mkdtemp(dir=self._folder))
        rows = function()

        def write(frame: DataFrame, _number: int) -> None:
            made = frame.mapInArrow(lambda batches: rows(None, batches, {}), SCHEMA)
            made.write.mode("append").parquet(str(out))

        took = self._run("without", {}, write)
        self._check(sum(pq.read_metadata(each).num_rows for each in out.glob("*.parquet")))
        return took

    def _check(self, found: int) -> None:
        if found != self._records:
            raise AssertionError(f"{found} rows instead of {self._records}")


def run(options: argparse.Namespace, queries: Queries) -> harness.Result:
    """Measure both sides in turn, after each has run once."""
    sides = {"with a region": queries.region, "without": queries.plain}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side()
    for number in range(options.rounds):
        for name in sorted(sides, reverse=bool(number % 2)):
            rates[name].append(options.records / sides[name]())
    result = harness.Result("rows", rates)
    pairs = zip(rates["with a region"], rates["without"], strict=True)
    shares = sorted(ours / theirs for ours, theirs in pairs)
    for name, seconds in queries.starts.items():
        result.note(f"s to the first batch {name}", median(seconds))
    result.note("least share of a pair", shares[0])
    result.note("greatest share of a pair", shares[-1])
    result.expect("share of the rate without", median(shares), TARGET)
    return result


def main() -> int:
    """Run the benchmark; 1 when a target was missed."""
    parser = harness.arguments(__doc__.splitlines()[0] if __doc__ else "", rounds=9)
    parser.add_argument("--records", type=int, default=10_000_000)
    options = parser.parse_args()
    options.value_bytes = 100
    # PySpark says so about every pandas since 3, at every use
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    jars = fetch_connector()
    with (
        tempfile.TemporaryDirectory(prefix="kohort-benchmark-") as folder,
        RealKafka(Path(folder, "kafka"), jvm_options=("-Xmx1g",)) as kafka,
        session(jars, "local[2]") as spark,
    ):
        fill(kafka.bootstrap_servers, options.records, options.value_bytes)
        Path(folder, "out").mkdir()
        bootstrap = kafka.bootstrap_servers
        queries = Queries(spark, bootstrap, Path(folder, "out"), options.records)
        result = run(options, queries)
    return harness.report("a Spark query in a region, local[2]", result, options.json)


if __name__ == "__main__":
    sys.exit(main())
