"""DeltaAppend on an S3 server: the promises that hold in a directory hold in a bucket."""

from __future__ import annotations

import multiprocessing
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.fs import FileSelector

from kohort.delta.parquet import ArrowTask
from kohort.delta.reports import TaskReport
from kohort.delta.storage import table_storage
from kohort.spark.writer.delta import DeltaAppend
from tests.delta.rows import IDS, SCHEMA, ListRows, Row, contents, span
from tests.spark import object_store


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with object_store.running() as found:
        yield found


@pytest.fixture
def table() -> str:
    return f"s3://{object_store.BUCKET}/{uuid.uuid4()}"


def data_files(table: str, options: dict[str, str]) -> set[str]:
    files = table_storage(table, options).file_system()
    return {info.path for info in files.get_file_info(FileSelector("")) if info.is_file}


def named_files(table: str, options: dict[str, str]) -> set[str]:
    uris = DeltaTable(table, storage_options=options).file_uris()
    return {uri.rsplit("/", 1)[1] for uri in uris}


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_replayed_batch_is_dropped(table: str, scheme: str, options: dict[str, str]) -> None:
    table = table.replace("s3", scheme, 1)
    append = DeltaAppend(table, "g", storage_options=options)
    rows = ListRows([span(0, 0, 10), span(1, 5, 7)])
    assert append.append(rows, SCHEMA, 0, IDS).rows_written == 12
    assert append.append(rows, SCHEMA, 0, IDS).rows_dropped == 12
    restarted = DeltaAppend(table, "g", storage_options=options)
    assert restarted.append(rows, SCHEMA, 0, IDS).rows_dropped == 12
    assert contents(table, options) == Counter([*span(0, 0, 10), *span(1, 5, 7)])


def test_a_large_file_arrives_whole(table: str, options: dict[str, str]) -> None:
    """Larger than a part of an upload, in several row groups."""
    append = DeltaAppend(table, "g", storage_options=options)
    append.append(ListRows([span(0, 0, 400_000)]), SCHEMA, 0, IDS)
    found = DeltaTable(table, storage_options=options).to_pyarrow_table()
    assert sorted(found["offset"].to_pylist()) == list(range(400_000))
    assert found["value"][7].as_py() == f"t-0-{found['offset'][7]}"


class Rival:
    """Rows during whose writing another application appends its own."""

    def __init__(self, table: str, options: dict[str, str]) -> None:
        self.table = table
        self.options = options
        self.rival: Sequence[Row] = span(0, 0, 6)

    def write(self, task: ArrowTask) -> Iterable[TaskReport]:
        reports = list(ListRows([span(0, 0, 10)]).write(task))
        if self.rival:
            other = DeltaAppend(self.table, "g", storage_options=self.options)
            other.append(ListRows([self.rival]), SCHEMA, 0, IDS)
        self.rival = ()
        return reports


def test_files_of_a_lost_attempt_are_removed(table: str, options: dict[str, str]) -> None:
    append = DeltaAppend(table, "g", storage_options=options)
    report = append.append(Rival(table, options), SCHEMA, 0, IDS)
    assert (report.rows_written, report.rows_dropped) == (4, 6)
    assert contents(table, options) == Counter(span(0, 0, 10))
    assert data_files(table, options) == named_files(table, options)


class Refused(Exception):
    """What a task meets in the middle."""


def test_files_of_a_failed_task_are_removed(table: str, options: dict[str, str]) -> None:
    class Broken:
        def write(self, task: ArrowTask) -> Iterable[TaskReport]:
            def batches() -> Iterator[pa.RecordBatch]:
                from tests.delta.rows import batch_of

                yield batch_of(span(0, 0, 200_000))
                raise Refused

            return [TaskReport.from_json(b["report"][0].as_py()) for b in task(batches())]

    with pytest.raises(Refused):
        DeltaAppend(table, "g", storage_options=options).append(Broken(), SCHEMA, 0, IDS)
    assert data_files(table, options) == set()


class Dying:
    """Rows after whose writing the process is gone: files without a commit."""

    def write(self, task: ArrowTask) -> Iterable[TaskReport]:
        list(ListRows([span(0, 0, 10)]).write(task))
        os._exit(9)


def die(table: str, options: dict[str, str]) -> None:
    DeltaAppend(table, "g", storage_options=options).append(Dying(), SCHEMA, 0, IDS)


def test_a_crash_between_files_and_commit_leaves_nothing_to_see(
    table: str, options: dict[str, str]
) -> None:
    process = multiprocessing.get_context("spawn").Process(target=die, args=(table, options))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    assert len(data_files(table, options)) == 1
    append = DeltaAppend(table, "g", storage_options=options)
    append.append(ListRows([span(0, 0, 10)]), SCHEMA, 0, IDS)
    assert contents(table, options) == Counter(span(0, 0, 10))
    assert len(data_files(table, options)) == 2
    found = DeltaTable(table, storage_options=options)
    found.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert data_files(table, options) == named_files(table, options)


def append_all(table: str, options: dict[str, str], step: int, start: object) -> None:
    start.wait(60)  # type: ignore[attr-defined]  # multiprocessing has no public barrier type
    append = DeltaAppend(table, "g", storage_options=options)
    for number, at in enumerate(range(0, 60, step)):
        rows = ListRows([span(partition, at, at + step) for partition in (0, 1)])
        append.append(rows, SCHEMA, number, IDS)


def test_two_processes_that_read_the_same_write_each_row_once(
    table: str, options: dict[str, str]
) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    workers = [
        context.Process(target=append_all, args=(table, options, step, barrier)) for step in (7, 11)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(100)
    assert [worker.exitcode for worker in workers] == [0, 0]
    found = contents(table, options)
    assert set(found.values()) == {1}
    assert set(found) >= set(span(0, 0, 60)) | set(span(1, 0, 60))
    assert data_files(table, options) == named_files(table, options)


def test_credentials_are_in_no_text(options: dict[str, str]) -> None:
    storage = table_storage("s3://bucket/table", options)
    assert "secret" not in repr(storage).replace("aws_secret_access_key", "")
    assert "secret'" not in str(DeltaAppend("s3://bucket/table", "g", storage_options=options))
