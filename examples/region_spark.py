"""Flights through two Spark applications that join and leave, with state that moves between them.

Both are operators of one region and write one Delta table. Each row has the total delay of its
aircraft so far, in minutes, which is part of the partition's state and moves with it. The
application north runs alone, south joins, north is killed with its JVM and restarted, south leaves
properly, and north reads the rest. Meanwhile a reader checks every version of the table: each is a
consistent cut, and in the end the table matches the flights sent. Needs Java 17; use your own
broker or the embedded one:

    python examples/region_spark.py [--bootstrap-servers HOST:PORT] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
from region import COLUMNS, PARTITIONS, Story, main

from kohort import AdminClient
from kohort.client import NewTopic
from kohort.region import DeltaSink
from kohort.spark import KohortDataSource, drain, region_sink, session_config
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = pa.schema([*COLUMNS.items(), ("worker", pa.string())])


# --------------------------------------------------------------------------------- an application


def totals(
    _at: TopicPartition, batches: Iterator[pa.RecordBatch], state: dict[str, int]
) -> Iterator[pa.RecordBatch]:
    """Add to each flight the total delay of its aircraft so far, including this flight."""
    for batch in batches:
        found = []
        for flight in batch.select(["aircraft", "delay"]).to_pylist():
            aircraft = flight["aircraft"]
            state[aircraft] = state.get(aircraft, 0) + flight["delay"]
            found.append(state[aircraft])
        yield batch.append_column("total", pa.array(found, pa.int64()))


def flights(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    """Return the stream of flights that this application reads as a member of the region."""
    from pyspark.sql.functions import coalesce, col, get_json_object, lit

    options = {
        "kafka.bootstrap.servers": given.bootstrap_servers,
        "subscribe": given.run,
        "startingOffsets": "earliest",
        "kafka.group.id": given.run,
        "kafka.client.id": given.role,
        "kafka.partition.assignment.strategy": "cooperative-sticky",
        "kafka.session.timeout.ms": "10000",
        "consistentRegion": given.run,
        "regionPeriod": "1s",
        "regionDrainTimeout": "60s",  # a checkpoint waits for the open batch; the first one is long
        "maxOffsetsPerTrigger": "5000",
    }
    stream = spark.readStream.format("kohort").options(**options).load()
    delay = get_json_object(col("value").cast("string"), "$.dep_delay").cast("long")
    return stream.select(
        "topic",
        "partition",
        "offset",
        coalesce(col("key").cast("string"), lit("")).alias("aircraft"),  # some have no tail number
        coalesce(delay, lit(0)).alias("delay"),
        lit(given.role).alias("worker"),
    ).coalesce(1)  # one file for each batch


def operate(given: argparse.Namespace) -> None:
    """Run a Spark application until SIGTERM, then end with a final checkpoint."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    spark = session(given.role)
    sink = region_sink(DeltaSink(given.out / "table", TABLE), totals)
    query = (
        flights(spark, given)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(given.out / f"checkpoint-{given.role}"))
        .start()
    )
    while query.isActive and not told.wait(0.2):
        pass
    if query.isActive:
        drain(query)
    else:
        query.awaitTermination()  # raises the error that ended it
    spark.stop()


def session(name: str) -> SparkSession:
    """Start Spark, small enough for two on one machine."""
    from pyspark.sql import SparkSession

    settings = {
        **session_config(),
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    builder = SparkSession.builder.appName(name).master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    spark.dataSource.register(KohortDataSource)
    return spark


# ------------------------------------------------------------------------------------- the story


class SparkStory(Story):
    """Two applications join and leave."""

    program = __file__
    patience_s = 300.0

    def play(self, flights: int, *, kill: bool) -> None:
        """Run all steps, one after the other, while flights are sent."""
        with AdminClient(bootstrap_servers=self.address) as admin:
            admin.create_topics([NewTopic(self.run, PARTITIONS)])
        self.start("reader")
        self.join("north")
        self.join("south")
        if kill:
            self.kill("north")
            self.start("north")
            self.show_all("application north comes back")
        self.stop("south")
        self.show_all("application south has left in order")
        self.wait(lambda: len(self.truth) >= flights, "all flights are sent")
        self.a_turn = 0
        self.show_all(f"all {len(self.truth):,} flights are sent")
        self.stop("north")
        self.stop("reader")
        self.listen()
        self.check_offsets()

    def kill(self, name: str) -> None:
        """Kill an application and all its processes: JVM, source and tasks."""
        for each in psutil.Process(self.processes[name].pid).children(recursive=True):
            each.kill()
        super().kill(name)


if __name__ == "__main__":
    sys.exit(main(__doc__, SparkStory, operate))
