"""Exactly once into a Delta Lake table, shared by every application of a consumer group.

The offsets travel with the data: one Delta commit per batch adds the batch's files and sets, for
each Kafka partition in it, the application transaction `<group>/<topic>/<partition>` to the last
offset + 1. Whoever reads a record again, after a crash or a hand-over, finds that number in the
table and drops the row. No coordinator is needed: Delta's own commit decides who was first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kohort.errors import KohortError
from kohort.spark.parquet import (
    ArrowTask,
    Span,
    TaskReport,
    WrittenFile,
    merge_spans,
    writing_task,
)
from kohort.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame

KEY_COLUMNS = ("topic", "partition", "offset")
# Each attempt re-reads the table, so one lost race costs one attempt.
ATTEMPTS = 20


class DeltaAppendError(KohortError):
    """A batch could not be appended; nothing of it is in the table."""


@dataclass(frozen=True, slots=True)
class AppendReport:
    """What became of one batch.

    Attributes:
        batch_id: Spark's number of the batch.
        rows_read: Rows in the batch.
        rows_written: Rows added to the table.
        rows_dropped: Rows that were in the table already.
        attempts: How often the files were written or the commit was tried.
        table_version: Version of the table that holds the batch, None when nothing was written.
    """

    batch_id: int
    rows_read: int
    rows_written: int
    rows_dropped: int
    attempts: int
    table_version: int | None


class RowSource(Protocol):
    """Where the rows of a batch come from; writes them as often as it is asked to."""

    def write(self, task: ArrowTask) -> Iterable[TaskReport]:
        """Feed all rows to `task`, any number of times in parallel, and return what it yields."""


class DeltaAppend:
    """Appends each batch of a stream to a Delta table exactly once; for `foreachBatch`.

    The stream must still have the columns `topic`, `partition` and `offset` of its records. Rows
    may be filtered, or one record may become several rows, as long as the same record always
    becomes the same rows. A topic that is deleted and created again starts at offset 0 and needs
    another `group_id` or another table.

    Args:
        path: The table's directory, which driver and executors must share.
        group_id: Consumer group; applications with the same group share the table's positions.
        partition_by: Columns to partition the table by when it is created.
        keep_offsets: Whether topic, partition and offset become columns of the table.
    """

    def __init__(
        self,
        path: str | Path,
        group_id: str,
        *,
        partition_by: Sequence[str] = (),
        keep_offsets: bool = True,
    ) -> None:
        if not group_id:
            raise ValueError("group_id must not be empty")
        if "://" in str(path):
            raise ValueError(f"{path}: DeltaAppend writes to directories that all machines share")
        self._directory = Path(path).absolute()
        self._group_id = group_id
        self._partition_by = tuple(partition_by)
        self._keep_offsets = keep_offsets
        self._positions: dict[tuple[str, int], int] = {}
        self.last_batch: AppendReport | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Append one batch.

        Raises:
            DeltaAppendError: The table's columns differ, or others kept winning the commit.
            ValueError: The frame lacks topic, partition or offset.
        """
        missing = [name for name in KEY_COLUMNS if name not in frame.columns]
        if missing:
            raise ValueError(
                f"DeltaAppend needs the columns {', '.join(KEY_COLUMNS)} of the source; "
                f"the stream has {', '.join(frame.columns)}"
            )
        self.append(_FrameRows(frame), _frame_schema(frame), batch_id)

    def append(self, rows: RowSource, schema: pa.Schema, batch_id: int) -> AppendReport:
        """Append rows that need not come from Spark.

        Args:
            rows: Writes the rows, again when others were faster.
            schema: Columns of the rows.
            batch_id: Number of the batch, for the report.

        Returns:
            What became of them; also kept as `last_batch`.
        """
        schema = self._table_columns(schema)
        table = self._open(schema)
        _check_columns(table, schema, self._directory)
        reports: list[TaskReport] | None = None
        for attempt in range(1, ATTEMPTS + 1):
            if reports is None:
                reports = list(rows.write(self._task(table, schema)))
            table.update_incremental()
            if self._learn_positions(table, reports):
                self._remove(reports)
                reports = None
            elif self._commit(table, reports):
                return self._finish(batch_id, reports, attempt, table)
        self._remove(reports or [])
        raise DeltaAppendError(
            f"{self._directory}: others won the commit {ATTEMPTS} times; "
            f"batch {batch_id} is not in the table"
        )

    def _task(self, table: DeltaTable, schema: pa.Schema) -> ArrowTask:
        return writing_task(
            str(self._directory),
            schema.serialize().to_pybytes(),
            table.metadata().partition_columns,
            dict(self._positions),
        )

    def _table_columns(self, schema: pa.Schema) -> pa.Schema:
        import pyarrow as pa

        dropped = () if self._keep_offsets else KEY_COLUMNS
        return pa.schema(
            [column.with_nullable(True) for column in schema if column.name not in dropped]
        )

    def _open(self, schema: pa.Schema) -> DeltaTable:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        if not DeltaTable.is_deltatable(str(self._directory)):
            self._directory.mkdir(parents=True, exist_ok=True)
            try:
                DeltaTable.create(
                    str(self._directory),
                    schema=Schema.from_arrow(schema),
                    mode="ignore",
                    partition_by=list(self._partition_by),
                )
            except DeltaError:
                # Another application created it between the question and the attempt.
                if not DeltaTable.is_deltatable(str(self._directory)):
                    raise
        return DeltaTable(str(self._directory))

    def _learn_positions(self, table: DeltaTable, reports: list[TaskReport]) -> bool:
        """Read the table's positions; return whether rows were written that are in it already."""
        stale = False
        for span in _spans(reports):
            key = (span.topic, span.partition)
            self._positions[key] = table.transaction_version(self._application(*key)) or 0
            stale = stale or span.first < self._positions[key]
        return stale

    def _commit(self, table: DeltaTable, reports: list[TaskReport]) -> bool:
        """Commit the files; return False when another writer was first.

        Delta refuses a writer whose view of the same transaction is stale, but takes a lower
        version from one whose view is not: `_learn_positions` looked at this very snapshot.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        files = [file for report in reports for file in report.files]
        if not files:
            return True
        positions = [
            Transaction(self._application(span.topic, span.partition), span.end)
            for span in _spans(reports)
        ]
        try:
            table.create_write_transaction(
                [_add_action(file) for file in files],
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=CommitProperties(app_transactions=positions),
            )
        except CommitFailedError:
            return False
        return True

    def _finish(
        self, batch_id: int, reports: list[TaskReport], attempts: int, table: DeltaTable
    ) -> AppendReport:
        for span in _spans(reports):
            self._positions[span.topic, span.partition] = span.end
        read = sum(report.rows_read for report in reports)
        written = sum(report.rows_written for report in reports)
        version = None
        if written:
            table.update_incremental()
            version = table.version()
        self.last_batch = AppendReport(batch_id, read, written, read - written, attempts, version)
        return self.last_batch

    def _remove(self, reports: Iterable[TaskReport]) -> None:
        for report in reports:
            for file in report.files:
                (self._directory / file.path).unlink(missing_ok=True)

    def _application(self, topic: str, partition: int) -> str:
        return f"{self._group_id}/{topic}/{partition}"


@dataclass(frozen=True, slots=True)
class _FrameRows:
    """The rows of a Spark DataFrame, written by Spark's executors."""

    frame: DataFrame

    def write(self, task: ArrowTask) -> list[TaskReport]:
        rows = self.frame.mapInArrow(task, "report string").collect()
        return [TaskReport.from_json(row["report"]) for row in rows]


def _frame_schema(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")


def _check_columns(table: DeltaTable, schema: pa.Schema, directory: Path) -> None:
    import pyarrow as pa

    present = {column.name: column.type for column in pa.schema(table.schema().to_arrow())}
    for column in schema:
        if column.name not in present:
            raise DeltaAppendError(f"{directory}: the table has no column {column.name!r}")
        if column.type != present[column.name]:
            raise DeltaAppendError(
                f"{directory}: column {column.name!r} is {present[column.name]} in the table "
                f"and {column.type} in the stream"
            )


def _spans(reports: Iterable[TaskReport]) -> list[Span]:
    return merge_spans(span for report in reports for span in report.spans)


def _add_action(file: WrittenFile) -> AddAction:
    from deltalake.transaction import AddAction

    values = dataclasses.asdict(file)
    return AddAction(modification_time=values.pop("modified_ms"), data_change=True, **values)
