"""One Spark application of the demo: the kohort source in, one Delta table out.

It is an operator of a consistent region or, with `--no-region`, a member of a group that appends.

The demo starts it as a separate process. It warms up its JVM, reports `ready`, and waits.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.demo.actors import say
from kohort.demo.settings import SPARK_PERIOD_MS, GroupProtocol
from kohort.spark.checkpoint.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FLIGHT = "id long, carrier string, flight int, tailnum string, origin string, dest string"
SCHEMA = FLIGHT + ", dep_delay long, month int, day int"


def session(name: str) -> SparkSession:
    """Start Spark with the settings for the kohort source, small enough for three instances."""
    from pyspark.sql import SparkSession

    from kohort.spark import KohortDataSource, session_config

    builder = SparkSession.builder.appName(f"kohort-demo-{name}").master("local[1]")
    for key, value in {
        **session_config(),
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    spark.dataSource.register(KohortDataSource)
    return spark


def warm_up(spark: SparkSession) -> None:
    """Make Spark load the dependencies of the first batch: planner, JSON reader, Python workers."""
    from pyspark.sql.functions import col, from_json

    frame = spark.range(10).select(from_json(col("id").cast("string"), SCHEMA).alias("flight"))
    frame.mapInArrow(lambda batches: batches, frame.schema).collect()


def flights(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Return the stream of parsed flights with their place in the topic."""
    from pyspark.sql.functions import col, from_json, lit

    protocol = GroupProtocol(arguments.group_protocol)
    member = protocol.client_settings(int(arguments.session_timeout_ms))
    stream = (
        spark.readStream.format(arguments.source)
        .options(**{f"kafka.{key}": value for key, value in member.items()})
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60000")
        .option("kafka.group.id", arguments.group)
        .option("kafka.client.id", arguments.name)
        .options(**of_region(arguments))
        .load()
    )
    parsed = from_json(col("value").cast("string"), SCHEMA).alias("flight")
    return stream.select("topic", "partition", "offset", parsed).select(
        "topic", "partition", "offset", "flight.*", lit(arguments.name).alias("application")
    )


def of_region(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the source's options that make the query an operator of a region, if there is one."""
    if not arguments.region:
        return {}
    return {
        "maxOffsetsPerTrigger": "15000",
        "consistentRegion": arguments.region,
        "regionPeriod": f"{SPARK_PERIOD_MS}ms",
        # A checkpoint waits for the open batch, so batches are short; three JVMs share the machine.
        "regionDrainTimeout": "60s",
    }


def writer(arguments: argparse.Namespace) -> Callable[[DataFrame, int], None]:
    """Return the function that writes a batch to the table."""
    if not arguments.region:
        from kohort.spark import DeltaAppend

        return DeltaAppend(arguments.table, group_id=arguments.group)
    from kohort.demo.totals import columns, totals_of_batches
    from kohort.region import DeltaSink
    from kohort.spark import region_sink

    return region_sink(DeltaSink(arguments.table, columns()), totals_of_batches)


def records_of_open_batch(checkpoint: Path, batch_id: int) -> int:
    """Count a batch's records from Spark's own offset log, which is written before the batch."""
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    manifest = Manifest.from_json(json.loads(lines[-1]))
    return sum(end - start for start, end in manifest.ranges.values())


def start(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Start the query that appends to the table."""
    append = writer(arguments)

    def write(frame: DataFrame, batch_id: int) -> None:
        say("batch-open", records=records_of_open_batch(Path(arguments.checkpoint), batch_id))
        append(frame, batch_id)
        say("batch-done")

    frame = flights(spark, arguments)
    if arguments.region:
        frame = frame.coalesce(1)  # one file per batch: readers see a table of many small batches
    return (
        frame.writeStream.foreachBatch(write)
        .trigger(processingTime="1 second")
        .option("checkpointLocation", arguments.checkpoint)
        .queryName(arguments.name)
        .start()
    )


def main() -> None:
    """Run the application until it must drain, or is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ("name", "bootstrap", "topic", "group", "table", "checkpoint", "source")
    for option in (*names, "session-timeout-ms", "group-protocol"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--region", help="name of a region to be an operator of")
    arguments = parser.parse_args()
    spark = session(arguments.name)
    if arguments.source != "kohort":
        from kohort.demo.sabotage import EagerCommitDataSource

        spark.dataSource.register(EagerCommitDataSource)
    warm_up(spark)
    say("ready")
    query: StreamingQuery | None = None
    for line in sys.stdin:
        if line.strip() == "go":
            query = start(spark, arguments)
            say("going")
        elif line.strip() == "drain":
            finish(query)
            break
    spark.stop()


def finish(query: StreamingQuery | None) -> None:
    """Drain the query and report how it ended."""
    from kohort.spark import drain

    if query is None:
        return
    failure = query.exception()
    if failure is not None:
        say("fatal", why=str(failure)[:2000])
        return
    drain(query)
    say("drained")


if __name__ == "__main__":
    main()
