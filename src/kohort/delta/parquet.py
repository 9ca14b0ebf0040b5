"""The executor side of `DeltaAppend`: drops stale rows, writes and describes Parquet files.

A file is visible to readers of the table only once the driver has named it in a commit. Files of
failed batches remain invisible; `DeltaTable.vacuum` removes them.

All file access goes through the table's file system, a directory or an object store.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from kohort.delta.reports import Span, TaskReport, WrittenFile, merge_spans, spans_of
from kohort.delta.rules import FieldPath, check_nulls
from kohort.delta.statistics import FileStatistics
from kohort.delta.storage import TableStorage

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow.fs import FileSystem

log = logging.getLogger("kohort.delta")

ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 64 * 1024 * 1024
# The folder name for null, as in Hive.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

# Partition values as written in the Delta protocol: a string, or None for null.
PartitionValues = tuple[tuple[str, str | None], ...]
# (topic, partition) -> offset of the first record that is not in the table yet.
Positions = Mapping[tuple[str, int], int]
# The function that `DataFrame.mapInArrow` runs in each task.
ArrowTask: TypeAlias = "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]"


class FileLayout(Struct, frozen=True):
    """How to write rows to files; small enough to be sent to every task.

    Attributes:
        schema: Serialized Arrow schema of the columns to write, in order.
        partition_by: Partition columns of the table.
        target_bytes: A file that exceeds this size is closed and a new one started; None: one file
            per task and combination of partition values.
        required: The fields that must not be null.
        table: Name of the table for error messages.
    """

    schema: bytes
    partition_by: tuple[str, ...] = ()
    target_bytes: int | None = None
    required: tuple[FieldPath, ...] = ()
    table: str = ""


class TableWriter:
    """Writes the rows of one task, one open file per combination of partition values.

    Args:
        files: File system rooted at the table, the same for every executor.
        layout: How to write rows to files.
    """

    def __init__(self, files: FileSystem, layout: FileLayout) -> None:
        import pyarrow as pa

        self._file_system = files
        self._schema = pa.ipc.read_schema(pa.py_buffer(layout.schema))
        self._layout = layout
        self._open: dict[PartitionValues, TableFile] = {}
        self._closed: list[WrittenFile] = []

    def write(self, table: pa.Table) -> None:
        """Write the rows of `table`, with the columns of the schema; missing ones are null.

        Raises:
            DeltaAppendError: A row has a null that the table does not allow.
        """
        import pyarrow as pa

        layout = self._layout
        check_nulls(table, layout.required, layout.partition_by, layout.table)
        for column in self._schema:
            if column.name not in table.schema.names:
                table = table.append_column(column, pa.nulls(len(table), column.type))
        chosen = table.select(self._schema.names)
        if chosen.schema.types != self._schema.types:
            chosen = chosen.cast(self._schema)
        for values, rows in _split(chosen, self._layout.partition_by):
            if values not in self._open:
                self._open[values] = TableFile(self._file_system, values)
            file = self._open[values]
            file.write(rows)
            if self._layout.target_bytes and file.size >= self._layout.target_bytes:
                self._closed.append(self._open.pop(values).close())

    def close(self) -> list[WrittenFile]:
        """Finish all files and describe them."""
        while self._open:
            values = next(iter(self._open))
            self._closed.append(self._open[values].close())
            del self._open[values]
        return self._closed

    def discard(self) -> None:
        """Remove the files written so far."""
        for file in self._open.values():
            file.discard()
        remove_files(self._file_system, (file.path for file in self._closed))


def columns_with_bounds(schema: pa.Schema) -> bool | list[str]:
    """Return the columns with bounds in a file's footer, in the format of `ParquetWriter`.

    Floating-point columns get none: the footer's bounds ignore NaN, so readers that look for values
    other than v would skip a file whose other values all equal v.
    """
    import pyarrow as pa

    leaves = [leaf for column in schema for leaf in _leaves(column.name, column.type)]
    bounded = [path for path, kind in leaves if not pa.types.is_floating(kind)]
    return bounded if bounded and len(bounded) < len(leaves) else bool(bounded)


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the Parquet columns of a column, with their types."""
    import pyarrow as pa

    if isinstance(kind, pa.StructType):
        inside = [(f"{path}.{field.name}", field.type) for field in kind]
    elif isinstance(kind, pa.MapType):
        inside = [
            (f"{path}.key_value.key", kind.key_type),
            (f"{path}.key_value.value", kind.item_type),
        ]
    elif isinstance(kind, pa.ListType | pa.LargeListType):
        inside = [(f"{path}.list.element", kind.value_type)]
    else:
        yield path, kind
        return
    for below in inside:
        yield from _leaves(*below)


class TableFile:
    """One Parquet file being written.

    Args:
        files: File system rooted at the table.
        values: Values of the partition columns, which are not in the file.
    """

    def __init__(self, files: FileSystem, values: PartitionValues) -> None:
        self._file_system = files
        self._folder = folder_of(values)
        self._name = f"{self._folder}part-{uuid.uuid4()}.parquet"
        self._values = values
        self._pending: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None
        self._statistics = FileStatistics()

    @property
    def size(self) -> int:
        """The number of bytes written, without pending rows."""
        return 0 if self._sink is None else int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        """Add rows, and write them once there are enough for a row group."""
        self._pending.append(rows)
        if (
            sum(len(table) for table in self._pending) >= ROW_GROUP_ROWS
            or sum(table.nbytes for table in self._pending) >= ROW_GROUP_BYTES
        ):
            self._flush()

    def close(self) -> WrittenFile:
        """Finish the file and describe it."""
        self._flush()
        assert self._writer is not None
        assert self._sink is not None
        self._writer.close()
        size = self.size
        self._sink.close()
        return WrittenFile(
            path=self._name,
            size=size,
            modified_ms=time.time_ns() // 1_000_000,
            partition_values=dict(self._values),
            stats=self._statistics.json(),
        )

    def discard(self) -> None:
        """Remove the file."""
        if self._sink is None:
            return
        # The footer no longer matters, but an unclosed writer warns.
        with contextlib.suppress(Exception):
            if self._writer is not None:
                self._writer.close()
        with contextlib.suppress(Exception):
            self._sink.close()
        remove_files(self._file_system, [self._name])

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        self._pending = []
        if self._writer is None:
            if self._folder:
                self._file_system.create_dir(self._folder, recursive=True)
            self._sink = self._file_system.open_output_stream(self._name)
            self._writer = pq.ParquetWriter(
                self._sink,
                rows.schema,
                compression="zstd",
                write_statistics=columns_with_bounds(rows.schema),
            )
        self._statistics.add(rows)
        self._writer.write_table(rows, row_group_size=len(rows))


def folder_of(values: PartitionValues) -> str:
    """Return the folder for these partition values, named as in deltalake.

    The values are in the log, but some readers take them from the path (polars 2.1).
    """
    return "".join(
        f"{name}={_NO_VALUE if value is None else quote(value, safe='')}/" for name, value in values
    )


def remove_files(files: FileSystem, names: Iterable[str]) -> None:
    """Remove files that no commit names; files that cannot be removed are logged, for `vacuum`.

    Args:
        files: File system rooted at the table.
        names: Paths relative to the table.
    """
    for name in names:
        try:
            files.delete_file(name)
        except FileNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001  # deltalake raises many kinds; the table is correct anyway
            log.warning(
                "file %s of a failed attempt could not be removed (%s); no reader sees it, and "
                "DeltaTable.vacuum removes it",
                name,
                error,
            )


def _split(
    table: pa.Table, partition_by: Sequence[str]
) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Yield the rows for each combination of partition values, without those columns."""
    if not partition_by:
        yield (), table
        return
    import pyarrow.compute as pc

    body = table.drop_columns(list(partition_by))
    combinations = table.group_by(list(partition_by)).aggregate([])
    for combination in combinations.to_pylist():
        mask = None
        for column, value in combination.items():
            if value is None:
                same = pc.is_null(table[column])
            else:
                same = pc.fill_null(pc.equal(table[column], value), fill_value=False)
            mask = same if mask is None else pc.and_(mask, same)
        values = tuple((column, partition_text(value)) for column, value in combination.items())
        yield values, body.filter(mask)


def partition_text(value: object) -> str | None:
    """Return a partition value in the format of the Delta protocol.

    Raises:
        TypeError: Values of this type cannot be partition values.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, str | int):
        return str(value)
    raise TypeError(f"a column of {type(value).__name__} cannot be a partition column")


def drop_stale(table: pa.Table, positions: Positions) -> tuple[pa.Table, list[Span], list[Span]]:
    """Return the rows at or above the table's position, their spans, and the spans of all rows.

    Args:
        table: Rows with the columns topic, partition and offset.
        positions: The known positions of the table.

    Raises:
        ValueError: A row has no topic, partition or offset.
    """
    import pyarrow.compute as pc

    for column in ("topic", "partition", "offset"):
        if table[column].null_count:
            raise ValueError(f"DeltaAppend needs {column} in every row, and one is null")
    seen = spans_of(table)
    stale = [span for span in seen if span.first < positions.get((span.topic, span.partition), 0)]
    for span in stale:
        old = pc.and_(
            pc.and_(
                pc.equal(table["topic"], span.topic), pc.equal(table["partition"], span.partition)
            ),
            pc.less(table["offset"], positions[span.topic, span.partition]),
        )
        table = table.filter(pc.invert(old))
    return table, spans_of(table) if stale else seen, seen


def writing_task(storage: TableStorage, layout: FileLayout, positions: Positions) -> ArrowTask:
    """Return the function for `DataFrame.mapInArrow`; it yields one `TaskReport` per task.

    Args:
        storage: The table's location.
        layout: How to write rows to files.
        positions: Rows below these are dropped.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        writer = TableWriter(storage.file_system(), layout)
        try:
            report = _write_all(batches, writer, positions)
        except BaseException:
            writer.discard()
            raise
        if report.rows_read:
            yield pa.record_batch({"report": pa.array([report.to_json()])})

    return run


def _write_all(
    batches: Iterable[pa.RecordBatch], writer: TableWriter, positions: Positions
) -> TaskReport:
    import pyarrow as pa

    read = written = 0
    spans: list[Span] = []
    seen: list[Span] = []
    for batch in batches:
        kept, found, all_found = drop_stale(pa.Table.from_batches([batch]), positions)
        read += batch.num_rows
        written += kept.num_rows
        spans = merge_spans([*spans, *found])
        seen = merge_spans([*seen, *all_found])
        if kept.num_rows:
            writer.write(kept)
    return TaskReport(read, written, writer.close(), spans, seen)
