"""The data source `kohort`: Kafka as a member of a consumer group, for streams and batches.

Spark makes copies of these classes in several processes (see docs/spark.md), so their
constructors only keep options. What belongs to a running query is in `driver.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kohort.spark.driver import QueryDriver
from kohort.spark.lookup import Lookup, client_settings
from kohort.spark.manifest import OffsetJson, Range
from kohort.spark.options import SourceOptions, check_stream_options, parse_options
from kohort.spark.schema import source_schema
from kohort.types import TopicPartition
from kohort.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class RangePartition(InputPartition):
    """What one task reads.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        start: First offset.
        end: Offset after the last.
    """

    topic: str
    partition: int
    start: int
    end: int


class KohortDataSource(DataSource):
    """Spark's entry to Kafka through a consumer group; the options are in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return "kohort"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)

    def schema(self) -> str:
        """Return the columns of Spark's own Kafka source."""
        return source_schema(self._parsed.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # Spark's signature
        """Return the reader of a bounded range, which needs no group."""
        return KohortBatchReader(self._parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's signature
        """Return the reader of a stream, which joins the group."""
        check_stream_options(self._parsed)
        return KohortStreamReader(self._parsed)


class KohortBatchReader(DataSourceReader):
    """Reads from the starting to the ending offsets as they are now.

    Args:
        options: The options of the `load()`.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return one range for each partition that has records."""
        from kohort.client.consumer import Consumer

        with Consumer.from_config(client_settings(self._options)) as consumer:
            return _tasks(Lookup(self._options, consumer).bounded())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range; runs on an executor."""
        return read_range(self._options, partition)


class KohortStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what the group gives to this query, batch by batch.

    Args:
        options: The options of the `load()`.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._running: QueryDriver | None = None

    @property
    def driver(self) -> QueryDriver:
        """The running query; asking for it joins the group, so only the driver's process may."""
        if self._running is None:
            self._running = QueryDriver(self._options)
        return self._running

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return `maxOffsetsPerTrigger`."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Read to the present end and no further."""
        self.driver.prepare_available_now()

    def initialOffset(self) -> OffsetJson:  # noqa: N802  # Spark's name
        """Return the offset before batch 0."""
        return self.driver.initial()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802  # Spark's name
        """Take note that `start` is finished and return the next batch."""
        return self.driver.latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> OffsetJson:  # noqa: N802  # Spark's name
        """Return the ends of the owned partitions, for the query's progress."""
        return self.driver.report()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:  # noqa: ARG002  # Spark's signature
        """Return one task per range of the batch; where it starts is in `end` too."""
        return _tasks(self.driver.ranges(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range; runs on an executor."""
        return read_range(self._options, partition)

    def commit(self, end: OffsetJson) -> None:
        """Do nothing: Spark calls this late or never, `latestOffset` is the sign that counts."""

    def stop(self) -> None:
        """Commit what is finished and leave the group."""
        if self._running is not None:
            self._running.stop()
            self._running = None


def read_range(options: SourceOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Fetch one range from the brokers, as Arrow batches with the columns of the source."""
    from kohort.client.ranges import RangeReader

    assert isinstance(task, RangePartition)
    reader = RangeReader(options.bootstrap_servers, options.settings)
    headers = options.include_headers
    yield from reader.read(
        task.topic, task.partition, task.start, task.end, include_headers=headers
    )


def _tasks(ranges: dict[TopicPartition, Range]) -> list[RangePartition]:
    return [RangePartition(*partition, *ranges[partition]) for partition in sorted(ranges)]
