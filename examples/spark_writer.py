"""Write to Kafka from Spark: a batch of flights, then the delayed ones as a stream.

It needs Java 17, `pip install "kohort[spark]"`, and a broker that has the topics `flights` and
`delays`, or creates topics automatically.

    python examples/spark_writer.py localhost:9092
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import SparkSession

from kohort.spark import KohortDataSource, session_config

FLIGHTS = [("AA 1", 12), ("UA 2", -3), ("B6 3", 95)]


def write_flights(spark: SparkSession, bootstrap: str) -> None:
    """Write a DataFrame: one record per row, to the partition of its key."""
    flights = spark.createDataFrame(FLIGHTS, "flight string, delay int")
    (
        flights.selectExpr("flight AS key", "to_json(struct(*)) AS value")
        .write.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "flights")
        .mode("append")
        .save()
    )


def copy_delays(spark: SparkSession, bootstrap: str, checkpoint: str) -> None:
    """Write a stream; here a column names the topic of each row."""
    flights = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("kafka.group.id", "delays")
        .load()
    )
    delays = flights.where("get_json_object(cast(value AS string), '$.delay') > 0")
    query = (
        delays.selectExpr("'delays' AS topic", "key", "value")
        .writeStream.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.compression.type", "zstd")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    builder = SparkSession.builder.appName("spark-writer")
    for key, value in session_config().items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(KohortDataSource)
    write_flights(spark, sys.argv[1])
    with tempfile.TemporaryDirectory() as checkpoint:
        copy_delays(spark, sys.argv[1], checkpoint)
    spark.stop()


if __name__ == "__main__":
    main()
