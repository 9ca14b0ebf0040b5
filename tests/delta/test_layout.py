"""How TableAppend lays a table out: columns, partitions, sizes of files, compaction."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

from kohort.delta.append import TableAppend
from kohort.delta.compaction import TARGET_BYTES, SmallFile, compact, plan
from kohort.delta.parquet import ArrowTask
from kohort.delta.positions import DeltaAppendError
from kohort.delta.reports import TaskReport
from kohort.delta.storage import table_storage
from tests.delta.random_tables import TableRows
from tests.delta.rows import IDS, SCHEMA, ListRows, Row, batch_of, contents, span


class Wider:
    """Rows with one more column."""

    def __init__(self, rows: list[Row], name: str, values: pa.DataType) -> None:
        self.schema = SCHEMA.append(pa.field(name, values))
        self.rows = rows

    def write(self, task: ArrowTask) -> Iterable[TaskReport]:
        narrow = batch_of(self.rows)
        column = pa.array(range(len(self.rows)), self.schema.types[-1])
        wide = pa.record_batch([*narrow.columns, column], schema=self.schema)
        for batch in task([wide]):
            yield TaskReport.from_json(batch["report"][0].as_py())


def append_wider(append: TableAppend, rows: list[Row], name: str, kind: pa.DataType) -> None:
    wider = Wider(rows, name, kind)
    append.append(wider, wider.schema, 0, IDS)


def column(path: Path, name: str) -> Counter[Any]:
    return Counter(DeltaTable(path).to_pyarrow_table(columns=[name])[name].to_pylist())


def test_new_columns_are_added_when_asked_for(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g", schema_mode="merge")
    append.append(ListRows([span(0, 0, 3)]), SCHEMA, 0, IDS)
    append_wider(append, span(0, 3, 5), "delay", pa.int32())
    append_wider(append, span(0, 5, 6), "carrier", pa.int64())
    # An application that does not know the new columns goes on.
    append.append(ListRows([span(0, 6, 8)]), SCHEMA, 1, IDS)
    assert contents(tmp_path) == Counter(span(0, 0, 8))
    assert column(tmp_path, "delay") == {None: 6, 0: 1, 1: 1}
    assert column(tmp_path, "carrier") == {None: 7, 0: 1}


def test_without_asking_a_new_column_is_refused(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g")
    append.append(ListRows([span(0, 0, 3)]), SCHEMA, 0, IDS)
    with pytest.raises(DeltaAppendError, match="no column 'delay'; pass schema_mode='merge'"):
        append_wider(append, span(0, 3, 5), "delay", pa.int32())


def test_a_changed_type_is_refused_by_name_in_both_modes(tmp_path: Path) -> None:
    append_wider(TableAppend(tmp_path, "g"), span(0, 0, 2), "delay", pa.int32())
    for mode in ("strict", "merge"):
        append = TableAppend(tmp_path, "g", schema_mode=mode)
        with pytest.raises(DeltaAppendError, match="'delay' is int32 in the table and int64"):
            append_wider(append, span(0, 2, 4), "delay", pa.int64())
        with pytest.raises(
            DeltaAppendError, match="'Delay' differs from the table's 'delay' only in case"
        ):
            append_wider(append, span(0, 2, 4), "Delay", pa.int32())


def test_a_type_that_delta_lacks_is_refused_by_column(tmp_path: Path) -> None:
    with pytest.raises(DeltaAppendError, match="column 'delay' is duration"):
        append_wider(TableAppend(tmp_path, "g"), span(0, 0, 2), "delay", pa.duration("us"))
    append_wider(TableAppend(tmp_path, "g"), span(0, 0, 2), "delay", pa.int32())
    merging = TableAppend(tmp_path, "g", schema_mode="merge")
    with pytest.raises(DeltaAppendError, match="column 'other' is duration"):
        append_wider(merging, span(0, 2, 4), "other", pa.duration("us"))


def test_a_column_that_must_not_be_null_is_asked_for(tmp_path: Path) -> None:
    fields = Schema.from_arrow(SCHEMA).fields
    must = Field("must", PrimitiveType("integer"), nullable=False)
    DeltaTable.create(tmp_path, Schema([*fields, must]))
    with pytest.raises(DeltaAppendError, match="'must' of the table must not be null"):
        TableAppend(tmp_path, "g").append(ListRows([span(0, 0, 3)]), SCHEMA, 0, IDS)


def test_two_applications_that_add_the_same_column_both_go_on(tmp_path: Path) -> None:
    TableAppend(tmp_path, "g").append(ListRows([span(0, 0, 1)]), SCHEMA, 0, IDS)
    start = threading.Barrier(2)
    failures: list[BaseException] = []

    def widen(partition: int) -> None:
        try:
            start.wait(30)
            append = TableAppend(tmp_path, "g", schema_mode="merge")
            append_wider(append, span(partition, 0, 5), "delay", pa.int32())
        except BaseException as error:  # noqa: BLE001  # the test says what it was
            failures.append(error)

    threads = [threading.Thread(target=widen, args=(partition,)) for partition in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert contents(tmp_path) == Counter([*span(0, 0, 1), *span(1, 0, 5), *span(2, 0, 5)])


def test_a_column_that_a_rival_adds_meanwhile_costs_no_rows(tmp_path: Path) -> None:
    class Meanwhile:
        def write(self, task: ArrowTask) -> Iterable[TaskReport]:
            yield from ListRows([span(0, 0, 5)]).write(task)
            rival = TableAppend(tmp_path, "g", schema_mode="merge")
            append_wider(rival, span(1, 0, 2), "delay", pa.int32())

    TableAppend(tmp_path, "g").append(Meanwhile(), SCHEMA, 0, IDS)
    assert contents(tmp_path) == Counter([*span(0, 0, 5), *span(1, 0, 2)])


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["valeu"], "partition_by names 'valeu'"),
        (["price"], "'price', which is double"),
        (["topic", "partition", "offset", "value", "price"], "names 'price'"),
    ],
)
def test_partition_columns_that_cannot_be(tmp_path: Path, columns: list[str], problem: str) -> None:
    append = TableAppend(tmp_path / "table", "g", partition_by=columns)
    with pytest.raises(DeltaAppendError, match=problem):
        append_wider(append, span(0, 0, 2), "price", pa.float64())
    assert not (tmp_path / "table").exists()


def test_all_columns_cannot_be_partition_columns(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g", partition_by=SCHEMA.names)
    with pytest.raises(DeltaAppendError, match="one must remain"):
        append.append(ListRows([span(0, 0, 2)]), SCHEMA, 0, IDS)


def test_another_partitioning_than_the_tables_is_refused(tmp_path: Path) -> None:
    TableAppend(tmp_path, "g", partition_by="topic").append(ListRows([]), SCHEMA, 0, IDS)
    with pytest.raises(DeltaAppendError, match="partitioned by topic, not by partition"):
        TableAppend(tmp_path, "g", partition_by=["partition"]).append(ListRows([]), SCHEMA, 0, IDS)
    TableAppend(tmp_path, "g").append(ListRows([span(0, 0, 2)]), SCHEMA, 0, IDS)
    assert contents(tmp_path) == Counter(span(0, 0, 2))


class Chunks:
    """One task that is given its rows in several batches."""

    def __init__(self, rows: list[Row], size: int) -> None:
        self.rows = rows
        self.size = size

    def write(self, task: ArrowTask) -> Iterable[TaskReport]:
        chunks = (self.rows[at : at + self.size] for at in range(0, len(self.rows), self.size))
        for batch in task(batch_of(chunk) for chunk in chunks):
            yield TaskReport.from_json(batch["report"][0].as_py())


def test_files_have_the_size_that_was_asked_for(tmp_path: Path) -> None:
    rows = span(0, 0, 600_000)
    append = TableAppend(tmp_path, "g", target_file_bytes=300_000)
    append.append(Chunks(rows, 150_000), SCHEMA, 0, IDS)
    sizes = [file.stat().st_size for file in tmp_path.glob("*.parquet")]
    assert len(sizes) == 4
    assert min(sizes) > 300_000
    assert contents(tmp_path).total() == 600_000


def test_files_are_compacted_after_so_many_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort.delta")
    append = TableAppend(tmp_path, "g", optimize_every=3)
    for number in range(3):
        append.append(ListRows([span(0, number * 5, number * 5 + 5)]), SCHEMA, number, IDS)
    assert len(DeltaTable(tmp_path).file_uris()) == 1
    assert "3 files became 1" in caplog.text
    # Positions outlive the compaction, and empty batches do not count.
    assert append.append(ListRows([span(0, 0, 15)]), SCHEMA, 3, IDS).rows_dropped == 15
    assert (
        TableAppend(tmp_path, "g").append(ListRows([span(0, 10, 17)]), SCHEMA, 4, IDS).rows_written
        == 2
    )
    assert contents(tmp_path) == Counter(span(0, 0, 17))


def test_compaction_keeps_partitions_and_fills_younger_columns(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g", partition_by=["partition"], schema_mode="merge")
    append.append(ListRows([[*span(0, 0, 5), *span(1, 0, 5)]]), SCHEMA, 0, IDS)
    append_wider(append, [*span(0, 5, 8), *span(1, 5, 8)], "delay", pa.int32())
    table = DeltaTable(tmp_path)
    assert compact(table, table_storage(tmp_path), TARGET_BYTES)
    assert len(table.file_uris()) == 2
    assert len(table.file_uris(file_pruning_predicate=[("partition", "=", 1)])) == 1
    assert contents(tmp_path) == Counter([*span(0, 0, 8), *span(1, 0, 8)])
    assert column(tmp_path, "delay") == {None: 10, 0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1}


@pytest.mark.parametrize("foreign", [True, False])
def test_files_that_another_writer_has_replaced_stay_replaced(
    tmp_path: Path, foreign: bool
) -> None:
    append = TableAppend(tmp_path, "g")
    for number in range(3):
        append.append(ListRows([span(0, number * 5, number * 5 + 5)]), SCHEMA, number, IDS)
    late, early = DeltaTable(tmp_path), DeltaTable(tmp_path)
    if foreign:
        early.optimize.compact()
    else:
        compact(early, table_storage(tmp_path), TARGET_BYTES)
    before = set(tmp_path.glob("*.parquet"))
    assert not compact(late, table_storage(tmp_path), TARGET_BYTES)
    assert set(tmp_path.glob("*.parquet")) == before
    assert contents(tmp_path) == Counter(span(0, 0, 15))


def test_appends_of_others_do_not_stop_a_compaction(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g")
    for number in range(3):
        append.append(ListRows([span(0, number * 5, number * 5 + 5)]), SCHEMA, number, IDS)
    late = DeltaTable(tmp_path)
    append.append(ListRows([span(0, 15, 20)]), SCHEMA, 3, IDS)
    assert compact(late, table_storage(tmp_path), TARGET_BYTES)
    assert contents(tmp_path) == Counter(span(0, 0, 20))
    assert len(DeltaTable(tmp_path).file_uris()) == 2


def test_files_are_put_together_by_size_and_partition() -> None:
    north, south = (("place", "north"),), (("place", "south"),)
    sizes = [(north, 40), (south, 10), (north, 30), (north, 80), (north, 50), (south, None)]
    files = [(where, SmallFile(str(n), size or 90)) for n, (where, size) in enumerate(sizes)]
    assert [[file.path for file in each.files] for each in plan(files, 100)] == [["0", "2"]]


def test_a_table_with_an_unknown_feature_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"delta.enableDeletionVectors": "true"}
    fields = Schema.from_arrow(SCHEMA)
    table = DeltaTable.create(tmp_path, fields, configuration=settings)
    assert not compact(table, table_storage(tmp_path), TARGET_BYTES)
    assert "as the table uses deletionVectors (deleted rows would come back), " in caplog.text


def test_applications_that_compact_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    start = threading.Barrier(3)
    failures: list[BaseException] = []

    def run(partition: int) -> None:
        try:
            start.wait(30)
            append = TableAppend(tmp_path, "g", optimize_every=1)
            for at in range(0, 30, 5):
                append.append(ListRows([span(partition, at, at + 5)]), SCHEMA, at, IDS)
        except BaseException as error:  # noqa: BLE001  # the test says what it was
            failures.append(error)

    threads = [threading.Thread(target=run, args=(partition,)) for partition in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert failures == []
    assert contents(tmp_path) == Counter(row for p in range(3) for row in span(p, 0, 30))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"schema_mode": "overwrite"}, "schema_mode must be one of strict, merge"),
        ({"positions_without_id": "new"}, "positions_without_id must be one of"),
        ({"optimize_every": 0}, "optimize_every must be at least 1"),
        ({"target_file_bytes": -1}, "target_file_bytes must be at least 1"),
    ],
)
def test_arguments_without_sense_are_refused(
    tmp_path: Path, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        TableAppend(tmp_path, "g", **arguments)


ODD = [
    "a",
    "a b",
    "a/b",
    "a%41",
    "é",
    "x=y",
    None,
    "a:b",
    "ab.",
    "..",
    "'q\"",
    "a\\b",
    "{x}",
    "日本",
]


def test_folders_of_partition_values_are_named_as_deltalake_names_them(tmp_path: Path) -> None:
    """There are readers that take the values from the path; compaction and vacuum keep to it."""
    keys = {"topic": ["t"] * len(ODD), "partition": pa.array([0] * len(ODD), pa.int32())}
    table = pa.table({**keys, "offset": range(len(ODD)), "k k": ODD})
    write_deltalake(tmp_path / "theirs", table, partition_by=["k k"])
    append = TableAppend(tmp_path / "ours", "g", partition_by=["k k"], optimize_every=2)
    for number in range(2):
        offsets = pa.array(range(number * len(ODD), (number + 1) * len(ODD)))
        append.append(TableRows([table.set_column(2, "offset", offsets)]), table.schema, number)
        ours, theirs = (folders(tmp_path / name) for name in ("ours", "theirs"))
        assert ours == theirs
    found = DeltaTable(tmp_path / "ours")
    assert len(found.file_uris()) == len(ODD)
    found.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert Counter(found.to_pyarrow_table()["k k"].to_pylist()) == Counter(ODD * 2)


def folders(table: Path) -> set[str]:
    return {each.parent.name for each in table.glob("*/*.parquet")}
