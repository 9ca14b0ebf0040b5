"""A Spark job that writes its input to files, tested with the fixtures of kohort.

pip install "kohort[broker,spark]" pytest
pytest examples/testing/test_spark.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kohort.testing import KafkaHarness


class Files:
    """The output of the job: a file for each batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, batch: int, amounts: list[int]) -> None:
        """Write a batch; a batch that Spark repeats replaces its file."""
        (self._folder / f"batch-{batch}").write_text("\n".join(map(str, amounts)))

    def total(self) -> int:
        """Return the sum of all written rows."""
        return sum(int(line) for path in self._folder.iterdir() for line in path.open())


def run(spark: SparkSession, kafka: dict[str, str], checkpoint: Path, files: Files) -> None:
    """Write all current records of the topic.

    Args:
        spark: The session.
        kafka: Options of the source.
        checkpoint: Where Spark stores its progress.
        files: Where to write to.
    """

    def write(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("cast(cast(value AS string) AS int) amount").collect()
        files.write(number, [row.amount for row in rows])

    source = spark.readStream.format("kohort").options(**kafka).load()
    query = source.writeStream.foreachBatch(write).trigger(availableNow=True)
    query.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


class Breaks(Files):
    """Writes, then fails before Spark can record it."""

    def write(self, batch: int, amounts: list[int]) -> None:
        """Write a batch and fail."""
        super().write(batch, amounts)
        raise OSError("the disk went away")


def test_a_batch_that_comes_again_counts_once(
    kohort_spark: SparkSession,
    kohort_broker: KafkaHarness,
    kohort_topic: str,
    kohort_group: str,
    tmp_path: Path,
) -> None:
    kafka = {
        "kafka.bootstrap.servers": kohort_broker.bootstrap_servers,
        "subscribe": kohort_topic,
        "startingOffsets": "earliest",
        "kafka.group.id": kohort_group,
    }
    output = tmp_path / "output"
    output.mkdir()
    kohort_broker.produce(kohort_topic, *(b"%d" % number for number in range(10)))
    with pytest.raises(StreamingQueryException, match="the disk went away"):
        run(kohort_spark, kafka, tmp_path / "checkpoint", Breaks(output))
    kohort_broker.produce(kohort_topic, b"100")
    run(kohort_spark, kafka, tmp_path / "checkpoint", Files(output))
    assert Files(output).total() == sum(range(10)) + 100
    kohort_broker.wait_for_no_lag(kohort_group, kohort_topic)
