"""Queries of both sources on one checkpoint, and the command that converts it in between."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.playing import Row, options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def kohort(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `kohort spark` as a person does."""
    command = [sys.executable, "-m", "kohort", "spark", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def converted(*arguments: str) -> dict[str, Any]:
    """Run a command that must succeed; return its JSON."""
    done = kohort(*arguments, "--quiet-seconds", "0", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(*arguments: str) -> str:
    """Run a command that must be refused in one line; return that."""
    done = kohort(*arguments)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


class Sink:
    """Rows by batch, as `foreachBatch` gets them; may fail in a batch after it has them."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Counter[Row]]] = []
        self.fails = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = Counter((row.partition, row.offset) for row in frame.collect())
        self.batches.append((batch, rows))
        if self.fails:
            raise RuntimeError("the sink fails on purpose")

    @property
    def rows(self) -> Counter[Row]:
        return sum((rows for _, rows in self.batches), Counter())


class Query:
    """One query on a topic, with one source or the other."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._topic = topic

    def stream(self, source: str, **more: str) -> DataFrame:
        settings = options(self._bootstrap, self._topic, **more)
        if source == "kafka":
            ours = ("kafka.group.id", "kafka.client.id", "kafka.partition.assignment.strategy")
            settings = {
                name: value
                for name, value in settings.items()
                if name not in (*ours, "kafka.heartbeat.interval.ms")
            }
        return self._spark.readStream.format(source).options(**settings).load()

    def run(self, source: str, checkpoint: Path, sink: Sink, **more: str) -> None:
        """Read what there is; a sink that fails ends the query."""
        rows = self.stream(source, **more).select("partition", "offset")
        writer = rows.writeStream.foreachBatch(sink)
        end(writer.option("checkpointLocation", str(checkpoint)), fails=sink.fails)

    def count(
        self, source: str, checkpoint: Path, counts: Callable[[DataFrame, int], None]
    ) -> None:
        """Count records by partition, with state."""
        grouped = self.stream(source, maxOffsetsPerTrigger="9").groupBy("partition").count()
        writer = grouped.writeStream.outputMode("complete").foreachBatch(counts)
        end(writer.option("checkpointLocation", str(checkpoint)))


def end(writer: Any, *, fails: bool = False) -> None:
    """Start a query that reads to the present end, and wait for that."""
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    expected = (
        pytest.raises(StreamingQueryException, match="on purpose") if fails else nullcontext()
    )
    with expected:
        assert query.awaitTermination(120)


def span(counts: dict[int, tuple[int, int]]) -> Counter[Row]:
    """Each record of some ranges once."""
    return Counter(_records(counts))


def _records(counts: dict[int, tuple[int, int]]) -> Iterator[Row]:
    for partition, (start, end_) in counts.items():
        yield from ((partition, offset) for offset in range(start, end_))
