"""Makes and reads Delta tables with Delta Lake for Spark; runs on a Python of its own.

PYTHON by_spark.py make FOLDER   makes a table for each of `TABLES`
PYTHON by_spark.py read FOLDER   prints of each table in the folder what Spark finds, a line of JSON
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import json
import operator
import sys
from collections.abc import Iterator, Mapping
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


def read(spark: Any, folder: Path) -> None:
    """Print the rows of each table, and the filters that do not find all of theirs."""
    for path in sorted(folder.iterdir()):
        sys.stdout.write(json.dumps({"table": path.name, **found(spark, path)}) + "\n")


# Filters are tried on tables of such names: deltalake's own bounds of decimals are not exact.
FILTERED = "ours"


def found(spark: Any, path: Path) -> dict[str, Any]:
    """The rows as texts, in the order of offsets, and conditions that miss rows; or a refusal."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        frame = spark.read.format("delta").load(str(path))
        rows = sorted(frame.collect(), key=lambda row: row["offset"])
    except PySparkException as error:
        return {"refused": error.getCondition()}
    except Py4JError as error:
        return {"refused": str(error).partition("\n")[0]}
    texts = [{name: repr(plain(row[name])) for name in frame.columns} for row in rows]
    return {"rows": texts, "missed": [*missed(frame, rows)] if FILTERED in path.name else []}


def missed(frame: Any, rows: list[Any]) -> Iterator[str]:
    """Conditions on columns that do not find the rows that hold them."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    for field in frame.schema:
        column = f.col("`" + field.name.replace("`", "``") + "`")
        if isinstance(field.dataType, ArrayType | BinaryType | MapType | StructType):
            continue
        for value in [row[field.name] for row in rows if row[field.name] is not None][:2]:
            given = str(value) if isinstance(value, decimal.Decimal) else value
            literal = f.lit(given).cast(field.dataType)
            for compare in (operator.eq, operator.ge, operator.le):
                wanted = {row["offset"] for row in rows if holds(compare, row[field.name], value)}
                seen = {row["offset"] for row in frame.filter(compare(column, literal)).collect()}
                if seen != wanted:
                    yield f"{field.name} {compare.__name__} {value!r}: {seen}, not {wanted}"


def holds(compare: Any, left: Any, right: Any) -> bool:
    """A comparison as Spark does it: NaN equals itself and is above every other number."""
    if left is None:
        return False
    ranked = [(each != each, 0 if each != each else each) for each in (left, right)]
    return bool(compare(*ranked))


def plain(value: Any) -> Any:
    """A value as both Spark and pyarrow can give it."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in sorted(value.items())}
    if hasattr(value, "asDict"):  # Spark's Row
        return plain(value.asDict())
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, decimal.Decimal):
        return fractions.Fraction(value)  # Spark writes -3E-38 with one more digit
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    return value


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
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in given.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    {"make": make, "read": read}[sys.argv[1]](spark, Path(sys.argv[2]))
    spark.stop()


if __name__ == "__main__":
    main()
