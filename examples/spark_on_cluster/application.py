"""A Spark application for a cluster: when asked to stop, it drains its queries and exits with 0.

Send SIGTERM to this process, or create the file `--stop-file`, a path or URI that Hadoop reads.

    spark-submit --conf spark.driver.extraJavaOptions=-Xss8m application.py \
        --bootstrap-servers kafka:9092 --topic flights --group delays \
        --table s3://bucket/delays --checkpoint s3a://bucket/checkpoints/delays-0
"""

from __future__ import annotations

import argparse
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from kohort.spark import KohortDataSource, append, drain, install, session_config

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap-servers", "topic", "group", "table", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--every", default="5 seconds")
    parser.add_argument("--stop-file", default="file:///var/tmp/stop-application")
    parser.add_argument("--drain-timeout", type=float, default=120.0)
    parser.add_argument("--option", action="append", default=[], help="KEY=VALUE of the source")
    return parser.parse_args()


def start(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    options = {
        "kafka.bootstrap.servers": given.bootstrap_servers,
        "kafka.group.id": given.group,
        "subscribe": given.topic,
        "startingOffsets": "earliest",
        **dict(option.split("=", 1) for option in given.option),
    }
    stream = spark.readStream.format("kohort").options(**options).load()
    rows = stream.selectExpr("topic", "partition", "offset", "cast(value AS string) AS value")
    return append(rows, given.table, checkpoint=given.checkpoint, every=given.every)


def exists(spark: SparkSession, uri: str) -> bool:
    jvm, java = spark._jvm, spark._jsc  # noqa: SLF001  # reaches every store that Spark does
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(uri)
    return bool(path.getFileSystem(java.hadoopConfiguration()).exists(path))


def main() -> None:
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    given = parsed()
    spark = SparkSession.builder.appName("delays").config(map={**session_config()}).getOrCreate()
    spark.dataSource.register(KohortDataSource)  # else Spark runs it by another interpreter
    install(spark)
    queries = [start(spark, given)]
    print("running", flush=True)
    while all(query.isActive for query in queries) and not exists(spark, given.stop_file):
        if told.wait(1.0):
            break
    with ThreadPoolExecutor(len(queries)) as pool:
        drains = [pool.submit(drain, query, given.drain_timeout) for query in queries]
    for each in drains:
        each.result()  # raises if its query had failed: the exit code is 1
    spark.stop()
    print("drained", flush=True)


if __name__ == "__main__":
    main()
