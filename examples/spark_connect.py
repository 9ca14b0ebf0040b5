"""Read Kafka through Spark Connect: the program has no JVM, and the source runs on the server.

It needs `pip install "kohort[spark]" "pyspark[connect]"`, on the server too, and a broker with a
topic `flights`. `local[2]` starts a local server, which needs Java 17; or name your own server.

    python examples/spark_connect.py localhost:9092
    python examples/spark_connect.py localhost:9092 sc://spark.example.com
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import SparkSession

from kohort.spark import KohortDataSource


def main() -> None:
    """Read all flights as a stream that ends at the current end of the topic."""
    bootstrap, *server = sys.argv[1:]
    spark = SparkSession.builder.remote(server[0] if server else "local[2]").getOrCreate()
    spark.dataSource.register(KohortDataSource)
    flights = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.group.id", "flights-by-connect")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        flights.selectExpr("partition", "offset", "cast(value AS string) AS flight")
        .writeStream.format("memory")
        .queryName("seen")
        .option("checkpointLocation", tempfile.mkdtemp())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for row in spark.table("seen").orderBy("partition", "offset").collect():
        print(row.partition, row.offset, row.flight)
    spark.stop()


if __name__ == "__main__":
    main()
