"""Spark queries of a region that keep the running sum of each partition.

python -m tests.spark.region_queries BOOTSTRAP TOPIC DIRECTORY CHECKPOINT OPERATOR
runs one in an application of its own, until it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kohort.region import ParquetDirectory
from kohort.spark import region_sink
from tests.spark.playing import options
from tests.spark.sessions import small_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A checkpoint waits for the open batch, and the first one of a session takes long.
OF_REGION = {"regionPeriod": "500ms", "regionDrainTimeout": "60s"}


def running_sum() -> Any:
    """The function of `tests.region.regions`, by value: workers cannot import tests."""

    def sums(place: Any, batches: Iterator[pa.RecordBatch], state: dict[str, int]) -> Any:
        for batch in batches:
            rows = []
            columns = (batch[name].to_pylist() for name in ("offset", "value"))
            for offset, value in zip(*columns, strict=True):
                state["sum"] = state.get("sum", 0) + int(value)
                row = {"partition": place[1], "offset": offset}
                rows.append(row | {"value": int(value), "sum": state["sum"]})
            yield pa.RecordBatch.from_pylist(rows)

    return sums


def stream(spark: SparkSession, bootstrap: str, topic: str, operator: str) -> DataFrame:
    """The source of an operator."""
    given = options(
        bootstrap,
        topic,
        "cooperative",
        kafka__client__id=operator,
        kafka__session__timeout__ms="10000",
        maxOffsetsPerTrigger="400",
        consistentRegion=f"region-{topic}",
        **OF_REGION,
    )
    return spark.readStream.format("kohort").options(**given).load()


@contextmanager
def query(frame: DataFrame, sink: Any, checkpoint: Path, **trigger: Any) -> Iterator[Any]:
    """A running query; stopped at the end."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    started = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()
    try:
        yield started
    finally:
        started.stop()


def main() -> None:
    bootstrap, topic, directory, checkpoint, operator = sys.argv[1:]
    sink = region_sink(ParquetDirectory(directory), running_sum())
    with (
        small_session() as spark,
        query(stream(spark, bootstrap, topic, operator), sink, Path(checkpoint)) as started,
    ):
        started.awaitTermination()


if __name__ == "__main__":
    main()
