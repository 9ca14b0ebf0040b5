"""Two tables: the flights as stored in Kafka, and the number of flights in each partition."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def flights() -> DataFrame:
    """Each run of the pipeline appends the records that the group has not read yet."""
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
    """Each run counts the flights again."""
    return spark.read.table("flights").groupBy("partition").count()
