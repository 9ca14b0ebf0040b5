"""A task's report to the driver: the files it has written, and the offsets of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct, field, to_builtins

if TYPE_CHECKING:
    import pyarrow as pa


class WrittenFile(Struct, frozen=True):
    """A Parquet file in the table's directory that no commit names yet.

    Attributes:
        path: File name relative to the table.
        size: Size in bytes.
        modified_ms: Modification time, in milliseconds since 1970.
        partition_values: Partition column to value.
        stats: The file's statistics as the JSON text of the Delta protocol.
    """

    path: str
    size: int
    modified_ms: int
    partition_values: dict[str, str | None]
    stats: str


class Span(Struct, frozen=True):
    """Rows of one Kafka partition: the lowest offset and the one after the highest.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        first: Lowest offset.
        end: Highest offset + 1.
    """

    topic: str
    partition: int
    first: int
    end: int


class TaskReport(Struct, frozen=True):
    """The report of one task.

    Attributes:
        rows_read: Number of rows passed to the task.
        rows_written: Number of rows in its files; the others were already in the table.
        files: The files.
        spans: One entry per Kafka partition with kept rows.
        seen: One entry per Kafka partition with read rows.
    """

    rows_read: int = 0
    rows_written: int = 0
    files: list[WrittenFile] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    seen: list[Span] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the report as one line of text, for sending it from executor to driver."""
        return json.dumps(to_builtins(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> TaskReport:
        """Parse the result of `to_json`."""
        raw = json.loads(text)
        files = [WrittenFile(**item) for item in raw.pop("files")]
        spans, seen = ([Span(**item) for item in raw.pop(name)] for name in ("spans", "seen"))
        return TaskReport(files=files, spans=spans, seen=seen, **raw)


def spans_of(table: pa.Table) -> list[Span]:
    """Return the spans of a table's rows, one per Kafka partition."""
    keys = ["topic", "partition"]
    found = table.group_by(keys).aggregate([("offset", "min"), ("offset", "max")])
    return [
        Span(row["topic"], row["partition"], row["offset_min"], row["offset_max"] + 1)
        for row in found.to_pylist()
    ]


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Merge the spans of each Kafka partition into one."""
    merged: dict[tuple[str, int], Span] = {}
    for span in spans:
        key = (span.topic, span.partition)
        old = merged.get(key, span)
        merged[key] = Span(*key, min(old.first, span.first), max(old.end, span.end))
    return [merged[key] for key in sorted(merged)]
