"""Rows for `TableAppend` without Spark: from lists, in tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from kohort.delta.parquet import ArrowTask
from kohort.delta.reports import TaskReport

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("value", pa.string()),
    ]
)
Row = tuple[str, int, int]
IDS = {"t": "5c1b7e1e-0000-4000-8000-000000000001"}


@dataclass(frozen=True)
class ListRows:
    """Rows in tasks, as Spark would hand them out."""

    tasks: Sequence[Sequence[Row]]

    def write(self, task: ArrowTask) -> Iterable[TaskReport]:
        for rows in self.tasks:
            for batch in task([batch_of(rows)]):
                yield TaskReport.from_json(batch["report"][0].as_py())


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [[row[index] for row in rows] for index in range(3)]
    values = [f"{topic}-{partition}-{offset}" for topic, partition, offset in rows]
    return pa.record_batch([*columns, values], schema=SCHEMA)


def span(partition: int, start: int, end: int) -> list[Row]:
    return [("t", partition, offset) for offset in range(start, end)]


def contents(table: Path | str, options: Mapping[str, str] | None = None) -> Counter[Row]:
    found = DeltaTable(table, storage_options=dict(options or {}))
    rows = found.to_pyarrow_table(columns=["topic", "partition", "offset"])
    return Counter(tuple(row.values()) for row in rows.to_pylist())
