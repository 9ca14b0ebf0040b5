"""Exactly once from a Spark stream into a Delta Lake table (`kohort.delta.append`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from msgspec import Struct

from kohort.delta.append import KEY_COLUMNS, DeltaOptions, TableAppend
from kohort.delta.columns import check_types
from kohort.delta.parquet import ArrowTask
from kohort.delta.positions import DeltaAppendError
from kohort.delta.reports import TaskReport
from kohort.spark.environment import use_this_interpreter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType


class DeltaAppend(TableAppend):
    """Appends each batch of a stream to a Delta table exactly once; for `foreachBatch`.

    It calls `install` for the session of the thread that creates it, so that the query may share
    its group; this is not possible on Spark Connect.

    Args:
        table: As for `TableAppend`, like all other arguments.
        group_id: The consumer group.
        **options: The optional arguments.
    """

    def __init__(self, table: str | Path, group_id: str, **options: Unpack[DeltaOptions]) -> None:
        from kohort.spark.completion.listener import install_where_possible, present_session

        super().__init__(table, group_id, **options)
        use_this_interpreter()
        install_where_possible(present_session())

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Append one batch.

        Raises:
            DeltaAppendError: The table's columns differ, other writers kept winning the commit, or
                the batch may belong to a different topic than the table's positions.
            RepeatedBatchError: This run of the query has already passed the batch to the table.
            ValueError: The frame lacks topic, partition or offset.
        """
        from kohort.spark.checkpoint.batch_ids import topic_ids
        from kohort.spark.writer.repeated_batches import refuse_repeated

        check_key_columns(frame.columns)
        sink = f"DeltaAppend({self._storage.uri}, {self._group_id})"
        with refuse_repeated(sink, frame, batch_id):
            ids = topic_ids(frame) or self._topic_ids
            self.append(
                _FrameRows(frame), arrow_schema(frame.schema, self._storage.uri), batch_id, ids
            )


def check_key_columns(columns: Sequence[str]) -> None:
    """Refuse a stream without the columns that identify records.

    Args:
        columns: Names of the stream's columns.

    Raises:
        ValueError: A column is missing; the message names the present and the missing ones.
    """
    missing = [name for name in KEY_COLUMNS if name not in columns]
    if missing:
        raise ValueError(
            f"DeltaAppend needs the columns {', '.join(KEY_COLUMNS)} of the source; "
            f"the stream has {', '.join(columns)}. Keep them in select, and pass "
            "keep_offsets=False if the table should not have them"
        )


class _FrameRows(Struct, frozen=True):
    """The rows of a Spark DataFrame, written by Spark's executors."""

    frame: DataFrame

    def write(self, task: ArrowTask) -> list[TaskReport]:
        rows = run_task(self.frame, task)
        return [TaskReport.from_json(text) for text in rows]


def run_task(frame: DataFrame, task: ArrowTask) -> list[str]:
    """Run a task on the executors, and return its reports.

    Args:
        frame: The rows.
        task: Takes batches with the frame's columns and yields batches with a text column,
            `report`.
    """
    if any(set(name) & set(".`") for name in frame.columns):
        frame, task = _with_plain_names(frame, task)
    return [row["report"] for row in frame.mapInArrow(task, "report string").collect()]


def _with_plain_names(frame: DataFrame, task: ArrowTask) -> tuple[DataFrame, ArrowTask]:
    """Rename columns before the task, and back inside the task.

    Spark's `mapInArrow` looks up columns by name, and treats a dot as a field access.
    """
    names = frame.columns

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*(f"c{number}" for number in range(len(names)))), named


def arrow_schema(schema: StructType, table: str) -> pa.Schema:
    """Return the Arrow schema of a DataFrame's columns.

    Args:
        schema: The columns.
        table: Name of the table for error messages.

    Raises:
        DeltaAppendError: A Delta table cannot have a column; the message names it.
    """
    import pyarrow as pa

    found = pa.schema([_arrow_field(column, table) for column in schema])
    check_types(found, table)
    return found


def _arrow_field(column: StructField, table: str) -> pa.Field:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    kind = column.dataType.simpleString()
    failure: Exception | None = None
    remedy = "convert it to text with to_json"
    if "variant" not in kind:  # which is a struct of two binaries in Arrow
        remedy = "cast it"
        try:
            return to_arrow_schema(StructType([column]), timezone="UTC").field(0)
        except Exception as error:  # noqa: BLE001  # PySparkTypeError, or an error of pyarrow
            failure = error
    raise DeltaAppendError(
        f"{table}: column {column.name!r} is {kind}, which cannot be written to a Delta table; "
        f"{remedy} in the stream, or leave it out"
    ) from failure
