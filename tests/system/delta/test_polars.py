"""Random tables as polars reads them: its own reader of Parquet, and its own use of statistics.

Two of its limits meet deltalake's tables too: it fails at a structure of which one field has no
bounds, and it misses decimals of more than 15 digits where deltalake has written the bounds.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from polars.exceptions import InvalidOperationError

from kohort.delta.append import TableAppend
from tests.delta.differential import COMPARISONS, is_refused_by_both
from tests.delta.random_tables import TableRows, drawn


@pytest.mark.parametrize("seed", range(500))
def test_polars_finds_in_a_table_what_it_finds_in_the_rows(seed: int, tmp_path: Path) -> None:
    if is_refused_by_both(seed, tmp_path):
        return
    table = drawn(seed, Counter())
    half = len(table) // 2
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    TableAppend(ours, "g").append(TableRows([table[:half], table[half:]]), table.schema, 0)
    write_deltalake(theirs, table)
    rows = read(ours, table.schema.names)
    assert rows.equals(read(theirs, table.schema.names))
    for condition in conditions(table, rows):
        found = offsets(pl.scan_delta(str(ours)), condition)
        if found is None:
            assert offsets(pl.scan_delta(str(theirs)), condition) is None, str(condition)
        else:
            assert found == offsets(rows.lazy(), condition), str(condition)


def test_polars_finds_partition_values(tmp_path: Path) -> None:
    """It takes them from the paths of the files."""
    values = ["a", "a b", "a/b", "a%41", "é", "x=y", None, "a:b", "ab.", "..", "'q\"", "日本"]
    keys = {"topic": ["t"] * len(values), "partition": pa.array([0] * len(values), pa.int32())}
    table = pa.table({**keys, "offset": range(len(values)), "k": values})
    append = TableAppend(tmp_path, "g", partition_by=["k"])
    append.append(TableRows([table]), table.schema, 0)
    assert read(tmp_path, ["k"])["k"].to_list() == values
    for value in values:
        found = offsets(pl.scan_delta(str(tmp_path)), pl.col("k").eq_missing(value))
        assert found == [values.index(value)]


def offsets(frame: pl.LazyFrame, condition: pl.Expr) -> list[int] | None:
    """Which rows a condition finds, or None where polars cannot use the bounds of a structure."""
    try:
        found = frame.filter(condition).select("offset").collect()
    except InvalidOperationError:
        return None
    return sorted(found["offset"].to_list())


def read(folder: Path, names: list[str]) -> pl.DataFrame:
    """All rows of a table, in the order of their offsets."""
    return pl.read_delta(str(folder)).sort("offset").select(names)


def conditions(table: pa.Table, rows: pl.DataFrame) -> list[pl.Expr]:
    """Each comparison of each column with its lowest, middle and highest value; is it null."""
    found: list[pl.Expr] = []
    for column in table.schema:
        field = pl.col(column.name)
        found += [field.is_null(), field.is_not_null()]
        if not pa.types.is_nested(column.type):
            values = rows[column.name].drop_nulls().unique().sort()
            chosen = sorted({0, len(values) // 2, len(values) - 1}) if len(values) else []
            literals = [pl.lit(values[[number]]).first() for number in chosen]
            found += [compare(field, each) for compare in COMPARISONS for each in literals]
    return found
