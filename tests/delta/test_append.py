"""TableAppend without Spark: rows come from lists, rivals are other processes."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.delta.append import TableAppend
from kohort.delta.parquet import ArrowTask
from kohort.delta.positions import DeltaAppendError
from kohort.delta.reports import TaskReport
from tests.delta.rows import IDS, SCHEMA, ListRows, Row, contents, span


def position(path: Path, partition: int) -> int | None:
    return DeltaTable(path).transaction_version(f"g/t/{partition}@{IDS['t']}")


def test_a_replayed_batch_is_dropped(tmp_path: Path) -> None:
    append = TableAppend(tmp_path / "table", "g")
    rows = ListRows([span(0, 0, 10), span(1, 5, 7)])
    first = append.append(rows, SCHEMA, 0, IDS)
    again = append.append(rows, SCHEMA, 0, IDS)
    after_restart = TableAppend(tmp_path / "table", "g").append(rows, SCHEMA, 0, IDS)
    assert (first.rows_written, again.rows_dropped, after_restart.rows_dropped) == (12, 12, 12)
    assert contents(tmp_path / "table") == Counter([*span(0, 0, 10), *span(1, 5, 7)])
    assert (position(tmp_path / "table", 0), position(tmp_path / "table", 1)) == (10, 7)


def test_only_the_rows_above_the_position_are_written(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g")
    append.append(ListRows([span(0, 0, 10)]), SCHEMA, 0, IDS)
    report = append.append(ListRows([span(0, 4, 14)]), SCHEMA, 1, IDS)
    assert (report.rows_read, report.rows_written, report.rows_dropped) == (10, 4, 6)
    assert contents(tmp_path) == Counter(span(0, 0, 14))


def test_rows_of_one_record_stay_together(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g")
    twice = [*span(0, 0, 3), *span(0, 0, 3)]
    append.append(ListRows([twice]), SCHEMA, 0, IDS)
    append.append(ListRows([twice]), SCHEMA, 0, IDS)
    assert contents(tmp_path) == Counter(twice)


def test_an_empty_batch_commits_nothing(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g")
    report = append.append(ListRows([]), SCHEMA, 0, IDS)
    assert (report.rows_read, report.table_version) == (0, None)
    assert DeltaTable(tmp_path).version() == 0


def test_groups_do_not_see_each_other(tmp_path: Path) -> None:
    for group in ("g", "h"):
        TableAppend(tmp_path, group).append(ListRows([span(0, 0, 3)]), SCHEMA, 0, IDS)
    assert contents(tmp_path) == Counter([*span(0, 0, 3), *span(0, 0, 3)])


class Rival:
    """Rows during whose writing another application appends its own."""

    def __init__(self, path: Path, rows: Sequence[Row], rival: Sequence[Row]) -> None:
        self.path = path
        self.rows = ListRows([rows])
        self.rival = ListRows([rival])
        self.asked = 0

    def write(self, task: ArrowTask) -> Iterable[TaskReport]:
        reports = list(self.rows.write(task))
        if not self.asked:
            TableAppend(self.path, "g").append(self.rival, SCHEMA, 0, IDS)
        self.asked += 1
        return reports


def test_rows_that_a_rival_committed_meanwhile_are_dropped(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g")
    rows = Rival(tmp_path, span(0, 0, 10), span(0, 0, 6))
    report = append.append(rows, SCHEMA, 0, IDS)
    assert (report.rows_written, report.rows_dropped, rows.asked) == (4, 6, 2)
    assert contents(tmp_path) == Counter(span(0, 0, 10))


def test_a_slow_writer_never_sets_a_position_back(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g")
    rows = Rival(tmp_path, span(0, 0, 6), span(0, 0, 10))
    report = append.append(rows, SCHEMA, 0, IDS)
    assert (report.rows_written, report.table_version) == (0, None)
    assert position(tmp_path, 0) == 10
    assert contents(tmp_path) == Counter(span(0, 0, 10))


def test_rivals_on_other_partitions_cost_no_second_write(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g")
    rows = Rival(tmp_path, span(0, 0, 6), span(1, 0, 10))
    append.append(rows, SCHEMA, 0, IDS)
    assert rows.asked == 1
    assert contents(tmp_path) == Counter([*span(0, 0, 6), *span(1, 0, 10)])


def test_files_of_a_lost_attempt_are_removed(tmp_path: Path) -> None:
    TableAppend(tmp_path, "g").append(
        Rival(tmp_path, span(0, 0, 10), span(0, 0, 6)), SCHEMA, 0, IDS
    )
    named = {Path(uri).name for uri in DeltaTable(tmp_path).file_uris()}
    assert {path.name for path in tmp_path.glob("*.parquet")} == named


def test_statistics_and_sizes_are_true(tmp_path: Path) -> None:
    TableAppend(tmp_path, "g").append(ListRows([span(3, 7, 12)]), SCHEMA, 0, IDS)
    log = (tmp_path / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    add = next(entry["add"] for entry in map(json.loads, log) if "add" in entry)
    assert add["size"] == (tmp_path / add["path"]).stat().st_size
    stats = json.loads(add["stats"])
    assert stats["numRecords"] == 5
    assert stats["minValues"] == {"topic": "t", "partition": 3, "offset": 7, "value": "t-3-10"}
    assert stats["maxValues"] == {"topic": "t", "partition": 3, "offset": 11, "value": "t-3-9"}
    assert stats["nullCount"] == dict.fromkeys(SCHEMA.names, 0)


def test_a_partitioned_table_reads_back_whole(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g", partition_by=["topic", "partition"])
    append.append(ListRows([[*span(0, 0, 5), *span(1, 0, 3)]]), SCHEMA, 0)
    table = DeltaTable(tmp_path)
    assert table.metadata().partition_columns == ["topic", "partition"]
    assert contents(tmp_path) == Counter([*span(0, 0, 5), *span(1, 0, 3)])
    assert len(table.file_uris(file_pruning_predicate=[("partition", "=", 1)])) == 1


def test_offsets_need_not_become_columns(tmp_path: Path) -> None:
    append = TableAppend(tmp_path, "g", keep_offsets=False)
    append.append(ListRows([span(0, 0, 5)]), SCHEMA, 0, IDS)
    assert append.append(ListRows([span(0, 0, 5)]), SCHEMA, 0, IDS).rows_dropped == 5
    assert DeltaTable(tmp_path).to_pyarrow_table().column_names == ["value"]


def test_another_schema_is_refused_by_column(tmp_path: Path) -> None:
    TableAppend(tmp_path, "g").append(ListRows([]), SCHEMA, 0, IDS)
    other = SCHEMA.set(3, pa.field("value", pa.int64()))
    with pytest.raises(DeltaAppendError, match=r"'value' is string in the table and int64"):
        TableAppend(tmp_path, "g").append(ListRows([]), other, 0, IDS)
    with pytest.raises(DeltaAppendError, match="no column 'more'"):
        TableAppend(tmp_path, "g").append(
            ListRows([]), SCHEMA.append(pa.field("more", pa.string())), 0, IDS
        )


def test_deltalake_takes_a_lower_version_and_refuses_a_stale_view(tmp_path: Path) -> None:
    """The two facts that `TableAppend` is built on; a change in deltalake shows here first."""
    TableAppend(tmp_path, "g").append(ListRows([span(0, 0, 9)]), SCHEMA, 0, IDS)
    stale, fresh = DeltaTable(tmp_path), DeltaTable(tmp_path)
    lower = CommitProperties(app_transactions=[Transaction(f"g/t/0@{IDS['t']}", 1)])
    fresh.create_write_transaction([], "append", fresh.schema(), commit_properties=lower)
    assert position(tmp_path, 0) == 1
    with pytest.raises(Exception, match="Concurrent transaction"):
        stale.create_write_transaction([], "append", stale.schema(), commit_properties=lower)


def append_all(path: Path, batches: list[list[list[Row]]], start: object) -> None:
    start.wait(30)  # type: ignore[attr-defined]  # multiprocessing has no public barrier type
    append = TableAppend(path, "g")
    for number, tasks in enumerate(batches):
        append.append(ListRows(tasks), SCHEMA, number, IDS)


def test_three_processes_that_read_the_same_write_each_row_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    table = tmp_path / "table"
    steps = [7, 11, 13]
    workers = [
        context.Process(
            target=append_all,
            args=(
                table,
                [[span(p, at, at + step) for p in (0, 1)] for at in range(0, 120, step)],
                barrier,
            ),
        )
        for step in steps
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    found = contents(table)
    assert set(found.values()) == {1}
    assert set(found) >= set(span(0, 0, 120)) | set(span(1, 0, 120))


@settings(max_examples=15, deadline=None)
@given(
    moves=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(1, 5), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_any_order_of_replays_writes_each_row_once(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, int, int, bool]]
) -> None:
    """Applications replay any earlier read: what is in the table is the prefix that was read."""
    path = tmp_path_factory.mktemp("delta")
    apps = [TableAppend(path, "g") for _ in range(3)]
    ends = [0, 0]
    for number, (app, partition, size, forget) in enumerate(moves):
        start = max(0, ends[partition] - size) if forget else ends[partition]
        end = start + size
        apps[app].append(ListRows([span(partition, start, end)]), SCHEMA, number, IDS)
        ends[partition] = max(ends[partition], end)
    assert contents(path) == Counter([*span(0, 0, ends[0]), *span(1, 0, ends[1])])
