"""The writer of the data source `kohort`, for batches and streams.

Spark copies these classes: the copy on the driver checks the columns, and later logs the result; a
copy in each task writes. `task.py` does the work of a task.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kohort.spark.environment import log_like_spark
from kohort.spark.options.source import OptionError
from kohort.spark.options.writer import WriteOptions
from kohort.spark.writer.task import write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

log = logging.getLogger("kohort.spark")

# Allowed types of each column, in Spark's notation and in the order of Spark's own checks.
_TYPES: Mapping[str, tuple[str, ...]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


@dataclass
class TaskWritten(WriterCommitMessage):
    """The result of one task.

    Attributes:
        rows: Rows by topic, all acknowledged.
    """

    rows: Mapping[str, int]


class _TaskWriter:
    """Writes the rows of a task, in batches and streams alike.

    Args:
        options: The options of the write.
        schema: The columns of the DataFrame.

    Raises:
        OptionError: A column is missing or has a type that records do not have.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task; runs on an executor."""
        return TaskWritten(write_rows(self._options, self._columns, iterator).rows)


class KohortBatchWriter(_TaskWriter, DataSourceArrowWriter):
    """Writes the rows of a `save()`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the rows written, which are all acknowledged already."""
        _say_written("a batch", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the rows that stay written."""
        _say_failed("a batch", messages, self._options)


class KohortStreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Log the rows written, which are all acknowledged already."""
        _say_written(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Log the rows that stay written."""
        _say_failed(f"batch {batchId}", messages, self._options)


def columns_of(schema: StructType, topic: str | None) -> dict[str, int]:
    """Return the indexes of the record columns; other columns are not written.

    Error messages begin with the words of Spark's own writer.

    Args:
        schema: The columns of the DataFrame.
        topic: The option `topic`, which overrides the column.

    Raises:
        OptionError: A column is missing or has the wrong type.
    """
    names: list[str] = schema.fieldNames()
    if topic is None and "topic" not in names:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            "setting a topic."
        )
    if "value" not in names:
        raise OptionError(
            f"Required attribute 'value' not found; the DataFrame has {', '.join(names)}. Name the "
            'column of the values so, as with selectExpr("to_json(struct(*)) AS value")'
        )
    found = {name: names.index(name) for name in _TYPES if name in names}
    if topic is not None:
        found.pop("topic", None)
    for name, place in found.items():
        _check_type(name, schema.fields[place].dataType)
    return found


def _check_type(name: str, given: DataType) -> None:
    wanted = _TYPES[name]
    # A collation is not written.
    text = given.simpleString().partition(" collate ")[0]
    if text not in wanted:
        raise OptionError(
            f"{name} attribute unsupported type {text}. {name} must be a(n) {' or '.join(wanted)}"
        )


def _say_written(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    log_like_spark()
    rows = _total(messages)
    log.info("wrote %s: %d rows, %s", what, rows.total(), _by_topic(rows))


def _say_failed(
    what: str, messages: Sequence[WriterCommitMessage | None], options: WriteOptions
) -> None:
    log_like_spark()
    rows = _total(messages)
    finished = sum(message is not None for message in messages)
    log.warning(
        "could not write %s to %s: %d of %d tasks had finished, and their %d rows (%s) stay in the "
        "topics; rows of the others may be there, too. If the write is repeated, they are there "
        "twice: see the first error of a task for why it failed",
        what,
        f"topic {options.topic}" if options.topic else "the topics of the column topic",
        finished,
        len(messages),
        rows.total(),
        _by_topic(rows),
    )


def _total(messages: Sequence[WriterCommitMessage | None]) -> Counter[str]:
    total: Counter[str] = Counter()
    for message in messages:
        if isinstance(message, TaskWritten):
            total.update(message.rows)
    return total


def _by_topic(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{count} to {topic}" for topic, count in sorted(rows.items())) or "none"
