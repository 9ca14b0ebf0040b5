"""Exactly once from a Spark stream into a Delta Lake table (`kohort.delta.append`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from kohort.delta.append import KEY_COLUMNS, TableAppend
from kohort.delta.parquet import ArrowTask, TaskReport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class DeltaAppend(TableAppend):
    """Appends each batch of a stream to a Delta table exactly once; for `foreachBatch`.

    The arguments are those of `TableAppend`.
    """

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Append one batch.

        Raises:
            DeltaAppendError: The table's columns differ, others kept winning the commit, or the
                batch may be of another topic than the table's positions.
            RepeatedBatchError: This run of the query has given the batch to the table before.
            ValueError: The frame lacks topic, partition or offset.
        """
        from kohort.spark.batch_ids import topic_ids
        from kohort.spark.one_call import only_call

        check_key_columns(frame.columns)
        sink = f"DeltaAppend({self._storage.uri}, {self._group_id})"
        with only_call(sink, frame, batch_id):
            ids = topic_ids(frame) or self._topic_ids
            self.append(_FrameRows(frame), _frame_schema(frame), batch_id, ids)


def check_key_columns(columns: Sequence[str]) -> None:
    """Refuse a stream without the columns by which records are recognised.

    Args:
        columns: Names of the stream's columns.

    Raises:
        ValueError: Names what is there and what is missing.
    """
    missing = [name for name in KEY_COLUMNS if name not in columns]
    if missing:
        raise ValueError(
            f"DeltaAppend needs the columns {', '.join(KEY_COLUMNS)} of the source; "
            f"the stream has {', '.join(columns)}. Keep them in select, and pass "
            "keep_offsets=False if the table shall not have them"
        )


class _FrameRows(Struct, frozen=True):
    """The rows of a Spark DataFrame, written by Spark's executors."""

    frame: DataFrame

    def write(self, task: ArrowTask) -> list[TaskReport]:
        rows = self.frame.mapInArrow(task, "report string").collect()
        return [TaskReport.from_json(row["report"]) for row in rows]


def _frame_schema(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")
