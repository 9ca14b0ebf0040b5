"""Makes Delta tables with Delta Lake for Spark; runs on a Python of its own.

PYTHON by_spark.py FOLDER   makes a table for each of `TABLES`
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What a table has beside topic, partition, offset and a column n.
Making = Mapping[str, Any]


def settings(**values: str) -> Making:
    return {"settings": {f"delta.{name.replace('__', '.')}": each for name, each in values.items()}}


def columns(text: str, **more: str) -> Making:
    return {"columns": text, **settings(**more)}


TABLES: Mapping[str, Making] = {
    "nothing": {},
    "appendOnly": settings(appendOnly="true"),
    "changeDataFeed": settings(enableChangeDataFeed="true"),
    "checkConstraints": {"then": "ALTER TABLE {} ADD CONSTRAINT positive CHECK (n > 0)"},
    "NOT NULL": columns("m BIGINT NOT NULL"),
    "NOT NULL in a structure": columns("m STRUCT<a: BIGINT NOT NULL>"),
    "generatedColumns": columns("m BIGINT GENERATED ALWAYS AS (n + 1)"),
    "identityColumns": columns("m BIGINT GENERATED ALWAYS AS IDENTITY"),
    "allowColumnDefaults": columns("m BIGINT DEFAULT 7", feature__allowColumnDefaults="supported"),
    "columnMapping": settings(columnMapping__mode="name"),
    "deletionVectors": {
        **settings(enableDeletionVectors="true"),
        "then": "DELETE FROM {} WHERE n = 1",
    },
    "timestampNtz": columns("m TIMESTAMP_NTZ"),
    "variantType": columns("m VARIANT"),
    "v2Checkpoint": settings(checkpointPolicy="v2"),
    "rowTracking": settings(enableRowTracking="true"),
    "typeWidening": settings(enableTypeWidening="true"),
    "inCommitTimestamp": settings(enableInCommitTimestamps="true"),
    "icebergCompatV1": settings(enableIcebergCompatV1="true", columnMapping__mode="name"),
    "icebergCompatV2": settings(enableIcebergCompatV2="true", columnMapping__mode="name"),
    "vacuumProtocolCheck": settings(feature__vacuumProtocolCheck="supported"),
    "clustering": {"clause": "CLUSTER BY (n)"},
}


def make(spark: Any, folder: Path) -> None:
    """Make the tables, with three rows each."""
    for name, making in TABLES.items():
        table = f"delta.`{folder / name}`"
        more = f", {making['columns']}" if "columns" in making else ""
        given = ", ".join(f"'{k}' = '{v}'" for k, v in making.get("settings", {}).items())
        spark.sql(
            f"CREATE TABLE {table} (topic STRING, partition INT, offset BIGINT, n BIGINT{more}) "
            f"USING delta {making.get('clause', '')} "
            + (f"TBLPROPERTIES ({given})" if given else "")
        )
        value = "named_struct('a', id)" if "STRUCT" in more else "id"
        is_given = name in ("NOT NULL", "NOT NULL in a structure")
        spark.sql(
            f"INSERT INTO {table} (topic, partition, offset, n{', m' if is_given else ''}) "
            f"SELECT 'of Spark', 0, id, id{', ' + value if is_given else ''} "
            "FROM range(1, 4, 1, 1)"
        )
        if "then" in making:
            spark.sql(making["then"].format(table))


def main() -> None:
    from pyspark.sql import SparkSession

    given = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in given.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    make(spark, Path(sys.argv[1]))
    spark.stop()


if __name__ == "__main__":
    main()
