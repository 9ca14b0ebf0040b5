"""Spark's types as a Delta table has them, or an error that names the column."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types

from kohort.delta.positions import DeltaAppendError
from kohort.spark.writer.delta import arrow_schema


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (types.YearMonthIntervalType(), "interval year to month"),
        (types.DayTimeIntervalType(), "duration"),
        (types.CalendarIntervalType(), "interval"),
        (types.NullType(), r"null, and null \(VOID in Spark\) is not a type of Delta tables"),
        (types.ArrayType(types.NullType()), "list<.*null>"),
        (types.ArrayType(types.NullType(), containsNull=False), "array<void>"),
        (types.MapType(types.NullType(), types.NullType()), "map<void,void>"),
        (types.VariantType(), "variant, .*to_json"),
        (types.StructType([types.StructField("v", types.VariantType())]), "to_json"),
    ],
)
def test_a_type_that_delta_lacks_is_named_with_its_column(kind: types.DataType, said: str) -> None:
    schema = types.StructType(
        [types.StructField("n", types.LongType()), types.StructField("my.column", kind)]
    )
    with pytest.raises(DeltaAppendError, match=rf"flights: column 'my\.column' is .*{said}"):
        arrow_schema(schema, "flights")


def test_types_that_delta_has_are_taken() -> None:
    names = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "decimal(20,3)": pa.decimal128(20, 3),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "date": pa.date32(),
        "binary": pa.binary(),
        "string": pa.string(),
    }
    schema = types.StructType()
    for name in names:
        schema.add(name, name)
    assert arrow_schema(schema, "t").types == list(names.values())
