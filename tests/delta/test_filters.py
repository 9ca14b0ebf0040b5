"""Filters find each row of an appended table that they fit, as in a table of deltalake's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from kohort.delta.append import TableAppend
from kohort.delta.compaction import TARGET_BYTES, compact
from kohort.delta.positions import DeltaAppendError
from kohort.delta.storage import table_storage
from tests.delta.random_tables import TableRows

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
LONG = "x" * 65
COLUMNS: dict[str, Sequence[Any]] = {
    "timestamp": [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4, 5)],
    "timestamp_ntz": [datetime.fromisoformat(f"2026-01-0{day}") for day in (1, 2, 3, 4, 5)],
    "double": [-0.5, 0.0, 1.5, 2.5, 1e300],
    "decimal": [Decimal(n) / 100 for n in (-150, 0, 1, 250, 99999)],
    "boolean": [False, True, False, True, True],
    "short text": ["a", "b", "c", "d", "e"],
    "one text longer than 64": ["a", "b", LONG, "y", "z"],
    "text of the last character": ["a", "b", "\U0010ffff", "\U0010ffff", "\U0010ffff"],
}
# Times and numbers as a topic has them: the table of a query without a select.
TYPES = {"timestamp_ntz": pa.timestamp("us"), "timestamp": pa.timestamp("us", "UTC")}


def column_of(name: str) -> pa.Array:
    return pa.array(COLUMNS[name], TYPES.get(name))


def rows_of(name: str) -> pa.Table:
    count = len(COLUMNS[name])
    return pa.table(
        {
            "topic": pa.array(["t"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count)),
            "c": column_of(name),
        }
    )


@pytest.fixture(params=COLUMNS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(params=["appended", "compacted", "deltalake"])
def table(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> DeltaTable:
    """The same five rows in two files, or in one."""
    rows = rows_of(name)
    halves = [rows.slice(0, 2), rows.slice(2)]
    if request.param == "deltalake":
        for each in halves:
            write_deltalake(tmp_path, each, mode="append")
        return DeltaTable(tmp_path)
    append = TableAppend(tmp_path, "g")
    for number, each in enumerate(halves):
        append.append(TableRows([each]), rows.schema, number)
    found = DeltaTable(tmp_path)
    if request.param == "compacted":
        assert compact(found, table_storage(tmp_path), TARGET_BYTES)
    return found


def filters(values: Iterable[Any]) -> Iterator[tuple[str, Any, list[Any]]]:
    """Each comparison with each value, and what it leaves."""
    known = list(values)
    for name, compare in COMPARE.items():
        for value in dict.fromkeys(known):
            yield name, value, [each for each in known if compare(each, value)]


def test_each_comparison_finds_its_rows(table: DeltaTable, name: str) -> None:
    for compare, value, expected in filters(COLUMNS[name]):
        of_table = table.to_pyarrow_table(filters=[("c", compare, value)])
        assert sorted(of_table["c"].to_pylist()) == sorted(expected), (compare, value)


def test_a_dataset_and_sql_find_the_last_character(tmp_path: Path) -> None:
    """No text is greater than one of U+10FFFF, so that an upper bound cannot be cut."""
    last = "\U0010ffff" * 40
    rows = pa.table(
        {
            "topic": ["t"] * 3,
            "partition": pa.array([0] * 3, pa.int32()),
            "offset": range(3),
            "c": [last, "\U0010ffff", "a"],
        }
    )
    TableAppend(tmp_path, "g").append(TableRows([rows]), rows.schema, 0)
    table = DeltaTable(tmp_path)
    for text in (last, "\U0010ffff"):
        found = table.to_pyarrow_dataset().to_table(filter=pc.field("c") == text)
        assert found["c"].to_pylist() == [text]
        query = QueryBuilder().register("t", table).execute(f"select c from t where c = '{text}'")
        assert pa.table(query.read_all())["c"].to_pylist() == [text]


def test_an_empty_text_in_a_partition_column_is_null(tmp_path: Path) -> None:
    """Delta's protocol has one form for both."""
    rows = rows_of("short text").slice(0, 2).set_column(3, "c", pa.array(["", "b"]))
    TableAppend(tmp_path, "g", partition_by=["c"]).append(TableRows([rows]), rows.schema, 0)
    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["c"].to_pylist(), key=str) == [None, "b"]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_is_not_a_number_is_found_among_equal_numbers(
    tmp_path: Path, is_compacted: bool
) -> None:
    """The footer's bounds leave NaN out, and a reader would pass over the file."""
    rows = rows_of("short text").set_column(3, "c", pa.array([3.0, float("nan"), 3.0, 3.0, 3.0]))
    nested = pa.array([{"f": value.as_py(), "n": 1} for value in rows["c"]])
    rows = rows.append_column("s", nested)
    append = TableAppend(tmp_path, "g")
    for number, each in enumerate((rows.slice(0, 3), rows.slice(3))):
        append.append(TableRows([each]), rows.schema, number)
    table = DeltaTable(tmp_path)
    if is_compacted:
        assert compact(table, table_storage(tmp_path), TARGET_BYTES)
    for column in (pc.field("c"), pc.field("s", "f")):
        found = table.to_pyarrow_dataset().to_table(filter=column != 3.0)
        assert found["offset"].to_pylist() == [1]


def test_columns_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    rows = rows_of("short text").append_column("C", pa.array(range(5)))
    with pytest.raises(DeltaAppendError, match="the columns 'c' and 'C' differ only in case"):
        TableAppend(tmp_path / "out", "g").append(TableRows([rows]), rows.schema, 0)
    assert not (tmp_path / "out").exists()


def test_rows_without_a_column_of_the_table_are_found_as_null(tmp_path: Path) -> None:
    table = pa.table({"topic": ["t"], "partition": pa.array([0], pa.int32()), "offset": [0]})
    inner = pa.struct([("a", pa.int64())])
    wider = table.schema.append(pa.field("extra", pa.int64())).append(pa.field("more", inner))
    DeltaTable.create(tmp_path, schema=wider)
    TableAppend(tmp_path, "g").append(TableRows([table]), table.schema, 0)
    found = DeltaTable(tmp_path).to_pyarrow_dataset()
    for name in ("extra", "more"):
        assert found.to_table(filter=pc.field(name).is_null()).num_rows == 1
