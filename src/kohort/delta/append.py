"""Exactly-once appends to a Delta Lake table, shared by all applications of a consumer group.

The offsets are committed with the data: one Delta commit per batch adds the batch's files and sets,
for each Kafka partition in it, an application transaction to the last offset + 1. A query that
reads a record again, after a crash or a hand-over, finds that number in the table and drops the
row. No coordinator is needed: Delta's commit decides which writer was first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypedDict

from msgspec import Struct

from kohort.delta.columns import (
    SchemaMode,
    check_partition_columns,
    check_types,
    completed,
    fit_columns,
    nullable,
)
from kohort.delta.compaction import TARGET_BYTES, add_action, compact
from kohort.delta.opening import open_or_make
from kohort.delta.parquet import ArrowTask, FileLayout, remove_files, writing_task
from kohort.delta.positions import (
    DeltaAppendError,
    Position,
    TablePositions,
    WithoutId,
    check_restart,
)
from kohort.delta.reports import Span, TaskReport, merge_spans
from kohort.delta.rules import FieldPath, check_rules, required_fields
from kohort.delta.storage import table_storage

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

log = logging.getLogger("kohort.delta")

KEY_COLUMNS = ("topic", "partition", "offset")
# Each attempt reads the table again, so one lost race costs one attempt.
ATTEMPTS = 20

# Topic ids by topic: of one batch, or a function that requests the current ids.
TopicIds: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str]]


class AppendReport(Struct, frozen=True):
    """The result of one batch.

    Attributes:
        batch_id: Spark's number for the batch.
        rows_read: Rows in the batch.
        rows_written: Rows added to the table.
        rows_dropped: Rows that were already in the table.
        attempts: How often the files were written or the commit was tried.
        table_version: Version of the table that holds the batch, None if nothing was written.
    """

    batch_id: int
    rows_read: int
    rows_written: int
    rows_dropped: int
    attempts: int
    table_version: int | None


class RowSource(Protocol):
    """The source of a batch's rows, which can be written repeatedly."""

    def write(self, task: ArrowTask) -> Iterable[TaskReport]:
        """Pass all rows to `task`, in any number of parallel calls, and return its results."""


class DeltaOptions(TypedDict, total=False):
    """The optional arguments of `TableAppend`, documented there."""

    partition_by: Sequence[str]
    keep_offsets: bool
    storage_options: Mapping[str, str] | None
    schema_mode: SchemaMode
    target_file_bytes: int | None
    optimize_every: int | None
    topic_ids: Callable[[], Mapping[str, str]] | None
    positions_without_id: WithoutId


class TableAppend:
    """Appends each batch of a stream to a Delta table exactly once.

    The stream must still have the columns `topic`, `partition` and `offset` of its records. Rows
    may be filtered, or a record may become several rows, as long as the same record always yields
    the same rows.

    Args:
        table: A directory that driver and executors share, or a URI of an object store (`s3://`,
            `abfss://`, `gs://`, ...).
        group_id: Consumer group; applications with the same group share the table's positions.
        partition_by: Columns by which to partition the table when it is created.
        keep_offsets: Whether topic, partition and offset become columns of the table.
        storage_options: deltalake's options for the object store, such as credentials.
        schema_mode: `merge` adds columns that the table lacks, `strict` refuses them.
        target_file_bytes: Start a new file once one exceeds this size; None: one file per task.
        optimize_every: Compact small files after this many non-empty batches; None: never.
        topic_ids: Requests the topics' ids if the batch does not contain them: on Spark Connect, or
            with another source.
        positions_without_id: How to treat positions that were written without a topic id: `same`
            asserts that they belong to the current topic, `other` that it was deleted and recreated
            since, and `check` refuses a batch that begins at offset 0 and ends below them, because
            either is possible.

    Raises:
        ValueError: The table's scheme is not supported, or an argument is invalid.
    """

    def __init__(
        self,
        table: str | Path,
        group_id: str,
        *,
        partition_by: Sequence[str] = (),
        keep_offsets: bool = True,
        storage_options: Mapping[str, str] | None = None,
        schema_mode: SchemaMode = "strict",
        target_file_bytes: int | None = None,
        optimize_every: int | None = None,
        topic_ids: Callable[[], Mapping[str, str]] | None = None,
        positions_without_id: WithoutId = "check",
    ) -> None:
        if not group_id:
            raise ValueError("group_id must not be empty")
        _check_choice("schema_mode", schema_mode, ("strict", "merge"))
        _check_choice("positions_without_id", positions_without_id, ("check", "same", "other"))
        _check_positive("target_file_bytes", target_file_bytes)
        _check_positive("optimize_every", optimize_every)
        self._group_id = group_id
        self._storage = table_storage(table, storage_options)
        self._places = TablePositions(group_id, positions_without_id)
        self._partition_by = (
            (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        )
        self._keep_offsets = keep_offsets
        self._schema_mode: SchemaMode = schema_mode
        self._target_file_bytes = target_file_bytes
        self._optimize_every = optimize_every
        self._topic_ids = topic_ids
        self._known_ids: dict[str, str] = {}
        self._positions: dict[tuple[str, int], int] = {}
        # The table's positions of the partitions of the current batch.
        self._read: dict[tuple[str, int], Position] = {}
        self._since_optimized = 0
        self.last_batch: AppendReport | None = None

    def append(
        self,
        rows: RowSource,
        schema: pa.Schema,
        batch_id: int,
        topic_ids: TopicIds | None = None,
    ) -> AppendReport:
        """Append one batch.

        Args:
            rows: Writes the rows; called again if another writer was faster.
            schema: Columns of the rows.
            batch_id: Number of the batch, for the report.
            topic_ids: Ids of the rows' topics. A function is called before the rows are read and
                again before the commit.

        Returns:
            A report of the batch; also kept as `last_batch`.
        """
        schema = self._table_columns(schema)
        check_types(schema, self._storage.uri)
        table = self._open(schema)
        fit_columns(table, schema, self._schema_mode, self._storage.uri)
        ids = dict(topic_ids() if callable(topic_ids) else topic_ids or {})
        self._remember(ids)
        reports: list[TaskReport] | None = None
        shape, known = _shape(table), dict(self._positions)
        for attempt in range(1, ATTEMPTS + 1):
            if reports is None:
                shape, known = _shape(table), dict(self._positions)
                reports = list(rows.write(self._task(table, schema, known)))
            table.update_incremental()
            try:
                # other writers may have changed the table meanwhile
                check_rules(table, self._storage.uri)
                fit_columns(table, schema, self._schema_mode, self._storage.uri)
                _check_ids(topic_ids, ids, reports)
                stale = self._learn_positions(table, reports, known)
            except DeltaAppendError:
                self._remove(reports)
                raise
            if stale or _shape(table) != shape:
                self._remove(reports)
                reports = None
            elif self._commit(table, reports):
                return self._finish(batch_id, reports, attempt, table)
        self._remove(reports or [])
        raise DeltaAppendError(
            f"{self._storage.uri}: other writers won the commit {ATTEMPTS} times; "
            f"batch {batch_id} is not in the table"
        )

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns that no table can have, before reading any rows.

        Args:
            schema: Columns of the rows.

        Raises:
            DeltaAppendError: A table cannot have a column; the message names it.
        """
        schema = self._table_columns(schema)
        check_types(schema, self._storage.uri)
        check_partition_columns(schema, self._partition_by, self._storage.uri)

    def _task(
        self, table: DeltaTable, schema: pa.Schema, positions: dict[tuple[str, int], int]
    ) -> ArrowTask:
        partition_by, required = _shape(table)
        layout = FileLayout(
            completed(schema, table).serialize().to_pybytes(),
            partition_by,
            self._target_file_bytes,
            required,
            self._storage.uri,
        )
        return writing_task(self._storage, layout, positions)

    def _table_columns(self, schema: pa.Schema) -> pa.Schema:
        import pyarrow as pa

        dropped = () if self._keep_offsets else KEY_COLUMNS
        return nullable(pa.schema([each for each in schema if each.name not in dropped]))

    def _open(self, schema: pa.Schema) -> DeltaTable:
        table = open_or_make(self._storage, schema, self._partition_by)
        check_rules(table, self._storage.uri)
        return table

    def _remember(self, ids: Mapping[str, str]) -> None:
        """Drop positions of topics that are not in the last batch."""
        self._positions = {
            key: position
            for key, position in self._positions.items()
            if ids.get(key[0]) == self._known_ids.get(key[0])
        }
        self._known_ids = dict(ids)

    def _learn_positions(
        self, table: DeltaTable, reports: list[TaskReport], known: Mapping[tuple[str, int], int]
    ) -> bool:
        """Read the table's positions; return whether different rows should have been written.

        Some rows may already be in the table. Or the table was recreated, and lacks rows that were
        left out.
        """
        self._read.clear()
        is_behind = False
        for seen in _seen(reports):
            key = (seen.topic, seen.partition)
            position = self._places.read(table, *key, self._known_ids.get(seen.topic))
            check_restart(seen, position)
            self._read[key] = position
            self._positions[key] = position.value
            is_behind |= position.value < known.get(key, 0) and seen.first < known[key]
        kept = _spans(reports)
        return is_behind or any(
            span.first < self._positions[span.topic, span.partition] for span in kept
        )

    def _commit(self, table: DeltaTable, reports: list[TaskReport]) -> bool:
        """Commit the files; return False if another writer was first.

        Delta refuses a writer whose view of the same transaction is stale, but accepts a lower
        version from a writer with a current view: `_learn_positions` has read this very snapshot.
        """
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError

        files = [file for report in reports for file in report.files]
        if not files:
            return True
        positions = self._places.transactions(table, _spans(reports), self._known_ids)
        try:
            table.create_write_transaction(
                [add_action(file) for file in files],
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
        for seen in _seen(reports):
            self._tell(seen, self._read[seen.topic, seen.partition])
        for span in _spans(reports):
            self._positions[span.topic, span.partition] = span.end
        read = sum(report.rows_read for report in reports)
        written = sum(report.rows_written for report in reports)
        version = None
        if written:
            table.update_incremental()
            version = table.version()
            self._optimize(table)
        self.last_batch = AppendReport(batch_id, read, written, read - written, attempts, version)
        return self.last_batch

    def _tell(self, seen: Span, position: Position) -> None:
        """Log the consequences of a recreated topic for the table."""
        where = f"{self._storage.uri}: {seen.topic}-{seen.partition}"
        if position.remade:
            log.warning(
                "%s: the topic was deleted and recreated (its id is %s now); its records are "
                "appended from its own offset 0, and those of the old topic are kept",
                where,
                self._known_ids[seen.topic],
            )
        if position.same_topic and seen.first < position.value:
            log.warning(
                "%s: records from offset %d to %d were left out, as the table has everything below "
                "%d. This is correct after a crash, or when a batch is read again. A RESTORE keeps "
                "the positions: to write the rows again that it removed, set the group back and "
                "pass another group_id to DeltaAppend or append",
                where,
                seen.first,
                min(seen.end, position.value) - 1,
                position.value,
            )
        if not position.same_topic and seen.first < position.value:
            log.warning(
                "%s: records from offset %d to %d were dropped, as the table holds everything "
                "below %d. No topic id says that it is the same topic: if it was deleted and "
                "recreated, they are lost (see topic_ids of DeltaAppend)",
                where,
                seen.first,
                min(seen.end, position.value) - 1,
                position.value,
            )

    def _optimize(self, table: DeltaTable) -> None:
        """Compact small files when due; the batch is in the table even if this fails."""
        self._since_optimized += 1
        if self._optimize_every is None or self._since_optimized < self._optimize_every:
            return
        self._since_optimized = 0
        try:
            compact(table, self._storage, self._target_file_bytes or TARGET_BYTES)
        except Exception as error:  # noqa: BLE001  # the batch is in the table; a failure would repeat it
            log.warning(
                "%s: small files could not be compacted, which is tried again after %d batches: %s",
                self._storage.uri,
                self._optimize_every,
                error,
            )

    def _remove(self, reports: Iterable[TaskReport]) -> None:
        names = [file.path for report in reports for file in report.files]
        if names:
            remove_files(self._storage.file_system(), names)


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")


def _shape(table: DeltaTable) -> tuple[tuple[str, ...], tuple[FieldPath, ...]]:
    """Return the constraints on files: the partition columns, and columns that must not be null."""
    return tuple(table.metadata().partition_columns), required_fields(table)


def _check_ids(asked: TopicIds | None, ids: Mapping[str, str], reports: list[TaskReport]) -> None:
    """Check that the topics are the same after reading as before."""
    if not callable(asked):
        return
    now = asked()
    for topic in sorted({span.topic for report in reports for span in report.seen}):
        if now.get(topic) != ids.get(topic):
            raise DeltaAppendError(
                f"topic {topic!r} was recreated while the batch was read (id {ids.get(topic)} "
                f"before, {now.get(topic)} after): its records may be of either topic"
            )


def _spans(reports: Iterable[TaskReport]) -> list[Span]:
    return merge_spans(span for report in reports for span in report.spans)


def _seen(reports: Iterable[TaskReport]) -> list[Span]:
    return merge_spans(span for report in reports for span in report.seen)
