"""The columns of the source: those of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kohort.spark.options.values import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HEADERS = "headers"

# Name and type in Spark's DDL.
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}


def check_columns(columns: Sequence[str] | None) -> None:
    """Check the option `columns`.

    Args:
        columns: Names of columns; None: all.

    Raises:
        OptionError: The list is empty, or a name is unknown or repeated.
    """
    if columns is None:
        return
    if not columns:
        raise OptionError(f"columns is empty: name some of {', '.join(COLUMNS)}")
    for name in columns:
        if name not in COLUMNS:
            raise OptionError(f"columns: no column {name!r}; there are {', '.join(COLUMNS)}")
        if columns.count(name) > 1:
            raise OptionError(f"columns: {name} is named twice")


def column_names(columns: Sequence[str] | None, include_headers: bool) -> tuple[str, ...]:
    """Return the columns to read, in order.

    Args:
        columns: The option `columns`; it may also name `headers`.
        include_headers: Whether to add `headers` when all columns are read.
    """
    if columns is not None:
        return tuple(columns)
    return tuple(name for name in COLUMNS if name != HEADERS or include_headers)


def source_schema(names: Sequence[str]) -> StructType:
    """Return the schema of the source.

    Args:
        names: The columns, in order.
    """
    from pyspark.sql import types

    kinds: dict[str, types.DataType] = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        COLUMNS[HEADERS]: types.ArrayType(
            types.StructType().add("key", "string").add("value", "binary")
        ),
    }
    return types.StructType([types.StructField(name, kinds[COLUMNS[name]]) for name in names])


def checked_columns(schema: StructType | None, own: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to read, from Spark's schema, which may be user-defined.

    Args:
        schema: The schema of `.schema(...)` or of a table, otherwise the source's own; None: the
            source's own.
        own: The columns selected by the options.

    Raises:
        OptionError: The source lacks a column, or has it with a different type.
    """
    if schema is None:
        return tuple(own)
    for each in schema.fields:
        if each.name not in COLUMNS:
            raise OptionError(
                f"the schema has a column {each.name!r}, and the source has {', '.join(COLUMNS)}. "
                "Decode the column value with DataFrame operations, such as from_json"
            )
        kind = each.dataType.simpleString()
        if kind != COLUMNS[each.name]:
            raise OptionError(
                f"the schema says {each.name} {kind}, and the source has {each.name} "
                f"{COLUMNS[each.name]}; use cast in a select"
            )
        if not each.nullable:  # Spark would refuse the Arrow batches, in the middle of a task
            raise OptionError(
                f"the schema says {each.name} {kind} NOT NULL, and all columns of the source may "
                "be null: leave NOT NULL out"
            )
    return tuple(schema.fieldNames())
