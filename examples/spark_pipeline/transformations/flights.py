"""Two tables: the flights as Kafka has them, and how many there are in each partition."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def flights() -> DataFrame:
    """What the group has not read yet is appended by each run of the pipeline."""
    return (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", os.environ["KAFKA_BOOTSTRAP_SERVERS"])
        .option("kafka.group.id", "flights-pipeline")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("partition", "offset", "cast(value AS string) AS flight")
    )


@dp.materialized_view
def flights_by_partition() -> DataFrame:
    """Counted anew by each run."""
    return spark.read.table("flights").groupBy("partition").count()
