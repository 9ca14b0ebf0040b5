"""The data source `kohort`: Kafka as a member of a consumer group, for streams and batches.

Spark makes copies of these classes in several processes (see docs/spark.md), so their constructors
only store options. The state of a running query is in `driver.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kohort.spark.environment import check_spark, use_this_interpreter

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        InputPartition,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    check_spark()  # Spark before 4.2 lacks some of them
    raise

from kohort.spark.checkpoint.manifest import OffsetJson
from kohort.spark.options.checks import check_stream_options
from kohort.spark.options.schema import checked_columns, source_schema
from kohort.spark.options.source import OptionError, SourceOptions, parse_options
from kohort.spark.options.tables import is_table, table_options, with_options, with_table_options
from kohort.spark.options.writer import parse_write_options
from kohort.spark.source.bounded import bounded_ranges, note_ignored_options
from kohort.spark.source.driver import QueryDriver
from kohort.spark.source.lookup import Lookup, client_settings
from kohort.spark.source.partition_reader import (
    RangePartition,
    ids_in,
    read_latest,
    read_task,
    tasks_of,
)
from kohort.spark.writer.datasource import KohortBatchWriter, KohortStreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kohort.spark.region.driver import RegionDriver


class KohortDataSource(DataSource):
    """Spark's entry point to Kafka consumer groups; docs/spark.md lists the options.

    Args:
        options: The options that Spark passes, as text.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to `format()`; Spark calls this first at registration."""
        use_this_interpreter()  # before Spark stores the interpreter that runs the source
        return "kohort"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._raw = dict(options)

    @cached_property
    def _parsed(self) -> SourceOptions:
        """The options of a `load()`; a table's options come later, from its columns."""
        return parse_options(table_options(self._raw) if is_table(self._raw) else self._raw)

    def schema(self) -> StructType:
        """Return the schema of Spark's own Kafka source."""
        schema = source_schema(self._parsed.column_names)
        return with_options(schema, table_options(self._raw)) if is_table(self._raw) else schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a bounded range, which needs no group.

        Args:
            schema: The columns of the rows.
        """
        options = self._options_with(schema)
        return KohortBatchReader(options, checked_columns(schema, options.column_names))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return a stream reader that joins the group, or one that reports why it cannot.

        Args:
            schema: The columns of the rows.
        """
        try:
            options = self._options_with(schema)
            check_stream_options(options)
            return KohortStreamReader(options, checked_columns(schema, options.column_names))
        except OptionError as error:
            return RefusedStreamReader(error)

    def _options_with(self, schema: StructType | None) -> SourceOptions:
        return parse_options(with_table_options(self._raw, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a `save()`.

        Args:
            schema: The columns of the rows.
            overwrite: Whether the mode is `overwrite`, which is refused.

        Raises:
            OptionError: The mode is `overwrite`.
        """
        if overwrite:
            raise OptionError(
                'mode("overwrite") is not supported: a topic cannot be replaced. Use mode("append")'
            )
        return KohortBatchWriter(parse_write_options(self._raw), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802  # Spark's signature
        """Return the writer of a streaming query; output mode `complete` also appends.

        Args:
            schema: The columns of the rows.
            overwrite: Whether the output mode is `complete`.
        """
        return KohortStreamWriter(parse_write_options(self._raw), schema)


class KohortBatchReader(DataSourceReader):
    """Reads from the starting to the ending offsets, as of now.

    Args:
        options: The options of the `load()`.
        columns: The columns that Spark requests; None: those of the options.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str] | None = None) -> None:
        self._options = options
        self._columns = options.column_names if columns is None else tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks that read the records present now."""
        from kohort.client.consumer.api import Consumer

        with Consumer.from_config(client_settings(self._options)) as consumer:
            ranges = bounded_ranges(self._options, Lookup(self._options, consumer))
        return tasks_of(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task; runs on an executor."""
        read = read_latest if self._options.is_table else read_task
        return read(self._options, partition, self._columns)


class KohortStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the partitions that the group assigns to this query, batch by batch.

    Args:
        options: The options of the `load()`.
        columns: The columns that Spark requests; None: those of the options.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str] | None = None) -> None:
        self._options = options
        self._columns = options.column_names if columns is None else tuple(columns)
        self._running: QueryDriver | RegionDriver | None = None

    @property
    def _query(self) -> QueryDriver | RegionDriver:
        """The running query; first access joins the group: only in the driver's process."""
        if self._running is None:
            note_ignored_options(self._options, is_stream=True)
            self._running = _driver(self._options)
        return self._running

    @property
    def driver(self) -> QueryDriver:
        """The running query of a reader outside a region."""
        query = self._query
        assert isinstance(query, QueryDriver)
        return query

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return `maxOffsetsPerTrigger`, or `minOffsetsPerTrigger` if only that is set."""
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Read up to the current end offsets and no further."""
        self._query.prepare_available_now()

    def initialOffset(self) -> OffsetJson:  # noqa: N802  # Spark's name
        """Return the offset before batch 0."""
        return self._query.initial()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802  # Spark's name
        """Mark `start` as finished and return the next batch.

        With `once` the limit is ReadAllAvailable, whatever the options are, and nothing waits.
        """
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        waits = not isinstance(limit, ReadAllAvailable)
        return self._query.latest(start, most, waits=waits)

    def reportLatestOffset(self) -> OffsetJson:  # noqa: N802  # Spark's name
        """Return the ends of the owned partitions, for the query's progress."""
        return self._query.report()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:  # noqa: ARG002  # Spark's signature
        """Return the tasks of the batch; `end` also contains the batch's start."""
        tasks = tasks_of(self._query.ranges(end), self._options, ids_in(end))
        is_greeting = end.get("region") and not end.get("batch")
        # An empty task lets workers start and import before a checkpoint waits for a batch.
        return [RangePartition((), {})] if is_greeting else tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task; runs on an executor."""
        return read_task(self._options, partition, self._columns)

    def commit(self, end: OffsetJson) -> None:
        """Do nothing: Spark calls this late or never; `latestOffset` marks a batch as finished."""

    def stop(self) -> None:
        """Commit finished batches and leave the group."""
        if self._running is not None:
            self._running.stop()
            self._running = None


def _driver(options: SourceOptions) -> QueryDriver | RegionDriver:
    if options.region is None:
        return QueryDriver(options)
    from kohort.spark.region.driver import RegionDriver

    return RegionDriver(options)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reports in Spark's first call why there is no stream.

    Spark turns an error raised in `streamReader` itself into an UnboundLocalError.

    Args:
        error: The error in the options.
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Raise the error."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Raise the error."""
        raise self._error

    def initialOffset(self) -> OffsetJson:  # noqa: N802  # Spark's name
        """Raise the error."""
        raise self._error

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: ARG002, N802  # Spark's signature
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # Spark's signature
        """Raise the error."""
        raise self._error
