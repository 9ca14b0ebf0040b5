"""The minimum cost of a Python source in Spark: a source with ready-made Arrow batches.

A batch read returns the given number of rows with Kafka's columns, from memory; a stream returns
those of a file of Arrow batches, batch by batch. Any additional time of another source is its own
work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kohort.spark.options.schema import column_names, source_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# About the same as the kohort source returns: a fetch of 4 MiB.
BATCH_BYTES = 4 * 1024 * 1024


@cache
def ready_batch(rows: int, value_bytes: int) -> pa.RecordBatch:
    """Return a batch, which is created once per process."""
    import pyarrow as pa

    from kohort.wire.records.arrow import SCHEMA

    columns = [
        pa.array([b"%012d" % number for number in range(rows)], pa.binary()),
        pa.array([bytes(value_bytes)] * rows, pa.binary()),
        pa.array(["records"] * rows),
        pa.array([0] * rows, pa.int32()),
        pa.array(range(rows), pa.int64()),
        pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
        pa.array([0] * rows, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class FloorDataSource(DataSource):
    """Options of a batch read: `rows`, `tasks`, `valueBytes`; of a stream: `path`, `rows`, `tasks`.

    In a stream `rows` is the number of rows per batch.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "floor"

    def schema(self) -> StructType:
        """Return Kafka's columns."""
        return source_schema(column_names(None, include_headers=False))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # Spark's signature
        """Return the reader."""
        return FloorReader(*(int(self.options[name]) for name in ("rows", "tasks", "valueBytes")))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's signature
        """Return the reader of a stream."""
        rows, tasks = (int(self.options[name]) for name in ("rows", "tasks"))
        return FloorStreamReader(self.options["path"], rows, tasks)


class FloorReader(DataSourceReader):
    """Returns ready-made batches.

    Args:
        rows: Total number of rows.
        tasks: Number of tasks.
        value_bytes: Bytes of each value.
    """

    def __init__(self, rows: int, tasks: int, value_bytes: int) -> None:
        self._rows = rows
        self._tasks = tasks
        self._value_bytes = value_bytes

    def partitions(self) -> Sequence[InputPartition]:
        """Return tasks of the same size."""
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the same batch until there are enough rows."""
        left = self._rows // self._tasks + (partition.value < self._rows % self._tasks)
        batch = ready_batch(BATCH_BYTES // (self._value_bytes + 30), self._value_bytes)
        while left > 0:
            yield batch[:left]
            left -= batch.num_rows


class FloorStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Returns the batches of a file, a range of rows for each batch of the query.

    Args:
        path: A file of Arrow batches, all with the same number of rows except the last.
        rows: Rows per batch of the query: a multiple of the rows of an Arrow batch.
        tasks: Tasks per batch.
    """

    def __init__(self, path: str, rows: int, tasks: int) -> None:
        self._path = path
        self._rows = rows
        self._tasks = tasks
        self._size = 0
        self._total = 0

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the number of rows per batch."""
        return ReadMaxRows(self._rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Do nothing: the file does not grow."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        """Return the start of the first batch."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802  # Spark's signature
        """Return the end of the next batch of the query."""
        if not self._total:
            self._size, self._total = _shape(self._path)
        return {"batch": min(start["batch"] + self._rows // self._size, self._total)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return tasks of about the same number of Arrow batches."""
        numbers = range(start["batch"], end["batch"])
        parts = (numbers[first :: self._tasks] for first in range(self._tasks))
        return [InputPartition(list(part)) for part in parts if part]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches of a task."""
        import pyarrow as pa

        with pa.memory_map(self._path) as file:
            batches = pa.ipc.open_file(file)
            for number in partition.value:
                yield batches.get_batch(number)


def _shape(path: str) -> tuple[int, int]:
    """Return the rows per Arrow batch of a file, and the number of batches."""
    import pyarrow as pa

    with pa.memory_map(path) as file:
        batches = pa.ipc.open_file(file)
        return batches.get_batch(0).num_rows, batches.num_record_batches
