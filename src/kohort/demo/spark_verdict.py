"""Reads the demo's table with Spark SQL, in a separate process, and prints the facts as JSON."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from kohort.demo.spark_app import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIGURES = """
    SELECT carrier, count(*) AS flights, count(dep_delay) AS departed,
           coalesce(sum(dep_delay), 0) AS delay_minutes
    FROM flights GROUP BY carrier ORDER BY carrier
"""
ROWS = "SELECT count(*) AS total, count(DISTINCT id) AS different FROM flights"
WRITERS = "SELECT application, count(*) AS written FROM flights GROUP BY application"


def facts(spark: SparkSession, table: str) -> dict[str, object]:
    """Return the facts of the table as plain values."""
    from deltalake import DeltaTable

    # The Delta log lists the table's files; Spark without a Delta jar reads only those.
    spark.read.parquet(*DeltaTable(table).file_uris()).createOrReplaceTempView("flights")
    rows = spark.sql(ROWS).first()
    return {
        "rows": rows["total"] if rows else 0,
        "distinct": rows["different"] if rows else 0,
        "figures": {
            row["carrier"]: [row["flights"], row["departed"], row["delay_minutes"]]
            for row in spark.sql(FIGURES).collect()
        },
        "read_by": {row["application"]: row["written"] for row in spark.sql(WRITERS).collect()},
    }


def main() -> None:
    """Print the facts of the table named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True)
    table = parser.parse_args().table
    spark = session("verdict")
    print(json.dumps(facts(spark, table)))  # this is the module's output
    spark.stop()


if __name__ == "__main__":
    main()
