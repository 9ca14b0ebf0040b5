"""Read Kafka with SQL: a topic as a table, queried as a batch and followed as a stream.

It needs Java 17, `pip install "kohort[spark]"`, and a broker with a topic `flights`.

    python examples/spark_sql.py localhost:9092
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from kohort.spark import KohortDataSource, session_config

TABLE = """
CREATE TABLE flights USING kohort OPTIONS (
    'kafka.bootstrap.servers' '{bootstrap}',
    'kafka.group.id' 'flights-by-sql',
    'subscribe' 'flights',
    'startingOffsets' 'earliest'
)
"""


def create_table(spark: SparkSession, bootstrap: str) -> None:
    """Create the table, without columns: only then does Spark get its options from the source."""
    spark.sql(TABLE.format(bootstrap=bootstrap))


def count_by_partition(spark: SparkSession) -> dict[int, int]:
    """Read all records; a batch read needs no group and commits nothing."""
    rows = spark.sql("SELECT partition, count(*) AS n FROM flights GROUP BY partition").collect()
    return {row.partition: row.n for row in rows}


def follow(spark: SparkSession, checkpoint: str) -> int:
    """Read the records that the group has not read yet, and return the number of flights."""
    query = (
        spark.readStream.table("flights")
        .selectExpr("cast(value AS string) AS flight")
        .writeStream.format("memory")
        .queryName("seen")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.table("seen").count()


def main() -> None:
    """Create the table, and read it in both ways."""
    builder = SparkSession.builder.appName("flights-by-sql").master("local[2]")
    for key, value in session_config().items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(KohortDataSource)
    create_table(spark, sys.argv[1])
    print("flights by partition:", count_by_partition(spark))
    print("flights followed:", follow(spark, "flights-by-sql-checkpoint"))
    spark.stop()


if __name__ == "__main__":
    main()
