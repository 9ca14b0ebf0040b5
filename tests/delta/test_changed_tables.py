"""Tables that others change or remove while a batch is written, or between two batches."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kohort.delta.append import TableAppend
from kohort.delta.parquet import ArrowTask
from kohort.delta.positions import DeltaAppendError
from kohort.delta.reports import TaskReport
from kohort.region import DeltaSink, OperatorId, RegionPartition, SinkError
from tests.delta.random_tables import TableRows

PLACE = RegionPartition("t", "an-id", 0)


def batch(first: int, end: int) -> pa.Table:
    count = end - first
    return pa.table(
        {
            "topic": ["t"] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": range(first, end),
            "v": [f"v{offset}" for offset in range(first, end)],
        }
    )


class Meanwhile(TableRows):
    """Rows after which something happens to the table, once."""

    happens: list[Callable[[], object]]

    def write(self, task: ArrowTask) -> Iterator[TaskReport]:
        yield from super().write(task)
        if self.happens:
            self.happens.pop()()


def append_while(path: Path, table: pa.Table, happens: Callable[[], object]) -> None:
    rows = Meanwhile([table])
    object.__setattr__(rows, "happens", [happens])
    TableAppend(path, "g").append(rows, table.schema, 1)


def overwrite(path: Path, table: pa.Table, **more: object) -> None:
    write_deltalake(path, table, mode="overwrite", schema_mode="overwrite", **more)  # type: ignore[call-overload]  # any options


@pytest.mark.parametrize(
    ("columns", "refusal"),
    [({"other": [1]}, "no column 'topic'"), ({"v": [1]}, "'v' is int64 in the table and string")],
)
def test_columns_that_change_meanwhile_are_refused_by_name(
    columns: dict[str, list[int]], refusal: str, tmp_path: Path
) -> None:
    first = batch(0, 3)
    TableAppend(tmp_path, "g").append(TableRows([first]), first.schema, 0)
    other = pa.table(columns)
    if "v" in columns:
        other = batch(9, 10).drop_columns(["v"]).append_column("v", other["v"])
    with pytest.raises(DeltaAppendError, match=refusal):
        append_while(tmp_path, batch(3, 6), lambda: overwrite(tmp_path, other))
    assert len(DeltaTable(tmp_path).to_pyarrow_table()) == 1


def test_a_partitioning_that_changes_meanwhile_is_followed(tmp_path: Path) -> None:
    first = batch(0, 3)
    TableAppend(tmp_path, "g").append(TableRows([first]), first.schema, 0)
    append_while(
        tmp_path, batch(3, 6), lambda: overwrite(tmp_path, batch(0, 3), partition_by=["v"])
    )
    found = DeltaTable(tmp_path).to_pyarrow_table().sort_by("offset")
    assert found["v"].to_pylist() == [f"v{offset}" for offset in range(6)]


def test_a_table_that_was_removed_gets_all_that_comes(tmp_path: Path) -> None:
    """What the object remembers of the former table leaves nothing out."""
    append, path = TableAppend(tmp_path / "table", "g"), tmp_path / "table"
    append.append(TableRows([batch(0, 10)]), batch(0, 1).schema, 0)
    shutil.rmtree(path)
    report = append.append(TableRows([batch(0, 15)]), batch(0, 1).schema, 1)
    assert (report.rows_written, report.rows_dropped) == (15, 0)
    assert DeltaTable(path).to_pyarrow_table().sort_by("offset")["offset"].to_pylist() == [
        *range(15)
    ]


@pytest.mark.parametrize(
    ("more", "refusal"),
    [({}, "no column 'v'"), ({"partition_by": ["offset"]}, "partitioned by offset, and rows were")],
)
def test_a_region_publishes_nothing_into_columns_that_have_changed(
    more: dict[str, object], refusal: str, tmp_path: Path
) -> None:
    rows = batch(0, 3)
    sink = DeltaSink(tmp_path, rows.schema)
    sink.open("r", "id-1", 0)
    operator = OperatorId("north", "incarnation")
    writer = sink.writer(operator, 1)
    writer.write(PLACE, rows)
    sink.publish(1, {operator: writer.prepare(1, 1)})
    writer.write(PLACE, batch(3, 6))
    output = writer.prepare(2, 1)
    other = rows if more else rows.drop_columns(["v"])
    overwrite(tmp_path, other, **more)
    with pytest.raises(SinkError, match=refusal):
        sink.publish(2, {operator: output})
    if not more:
        overwrite(tmp_path, rows)  # as it was
        sink.publish(2, {operator: output})
        assert len(DeltaTable(tmp_path).to_pyarrow_table()) == 6
