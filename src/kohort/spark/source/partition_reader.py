"""The executor side of the source: tasks, and how they read their ranges.

A compacted topic as a table is the last value of each key, as compaction would leave it.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from kohort.spark.checkpoint.manifest import Range
from kohort.spark.environment import log_like_spark
from kohort.spark.options.source import SourceOptions
from kohort.spark.source.tasks import Piece, TaskLimits, plan
from kohort.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.spark")

# One fetch usually returns fewer records: a thread would have nothing to read ahead.
READ_AHEAD_FROM = 50_000
KEY, VALUE = "key", "value"
# Minimum number of rows to read before outdated rows are dropped.
_TOGETHER = 200_000


@dataclass
class RangePartition(InputPartition):
    """The ranges that one task reads.

    Attributes:
        pieces: Ranges, read one after another.
        topic_ids: Ids of their topics, if known (KIP-516), so that a different topic with the same
            name is never read instead.
    """

    pieces: tuple[Piece, ...]
    topic_ids: Mapping[str, UUID]


def tasks_of(
    ranges: Mapping[TopicPartition, Range],
    options: SourceOptions,
    topic_ids: Mapping[str, UUID] | None = None,
) -> list[RangePartition]:
    """Return the tasks of a batch.

    Args:
        ranges: The ranges of the batch.
        options: The options of the `load()`.
        topic_ids: Ids of the topics; topics without one are read by name.
    """
    limits = TaskLimits.of_this_machine(options.min_partitions, options.max_records_per_partition)
    known = topic_ids or {}
    tasks = []
    for pieces in plan(ranges, limits):
        topics = {piece.partition.topic for piece in pieces}
        tasks.append(RangePartition(pieces, {name: known[name] for name in topics & known.keys()}))
    return tasks


def ids_in(offset: Mapping[str, object]) -> dict[str, UUID]:
    """Return the topic ids in an offset of the source; old offsets have none."""
    ids = offset.get("ids")
    if not isinstance(ids, Mapping):
        return {}
    return {str(topic): UUID(str(each)) for topic, each in ids.items() if each}


def read_task(
    options: SourceOptions, task: InputPartition, columns: Sequence[str]
) -> Generator[pa.RecordBatch, None, None]:
    """Fetch the ranges of a task from the brokers, as Arrow batches.

    While Spark takes one batch, the next is fetched and decoded.

    Args:
        options: The options of the `load()`.
        task: The ranges to read.
        columns: The columns that Spark expects, in their order.

    Raises:
        RangeLostError: Records are gone, and the option `failOnDataLoss` is not false.
        KafkaError: The brokers refuse, or none answered in time.
    """
    from kohort.spark.source.fetch.read_ahead import read_ahead

    if type(task) is InputPartition:  # Spark's own partition, if there is nothing to read
        return _nothing()
    assert isinstance(task, RangePartition)
    log_like_spark()
    if sum(piece.size for piece in task.pieces) < READ_AHEAD_FROM:
        return _read(options, task, columns)
    return read_ahead(lambda: _read(options, task, columns))


def _nothing() -> Generator[pa.RecordBatch, None, None]:
    yield from ()


def _read(
    options: SourceOptions, task: RangePartition, columns: Sequence[str]
) -> Generator[pa.RecordBatch, None, None]:
    from kohort.spark.source.fetch.ranges import OffsetRange, RangeReader

    reader = RangeReader(
        options.bootstrap_servers, options.settings, fail_on_data_loss=options.fail_on_data_loss
    )
    for (topic, partition), start, end in task.pieces:
        wanted = OffsetRange(topic, partition, start, end, task.topic_ids.get(topic))
        yield from reader.read_columns(wanted, columns)


def read_latest(
    options: SourceOptions, task: InputPartition, columns: Sequence[str]
) -> Generator[pa.RecordBatch, None, None]:
    """Fetch a task's partitions, and yield the last record of each key; raises as `read_task`.

    Args:
        options: The options of the `load()`.
        task: The partitions, from their beginnings.
        columns: The columns that Spark expects, in their order.
    """
    if type(task) is InputPartition:  # Spark's own partition, if there is nothing to read
        return
    assert isinstance(task, RangePartition)
    needed = tuple(dict.fromkeys((*columns, KEY, VALUE)))
    for piece in task.pieces:
        alone = RangePartition((piece,), task.topic_ids)
        where = f"{piece.partition.topic}-{piece.partition.partition}"
        yield from latest(read_task(options, alone, needed), columns, where)


def latest(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], where: str
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the last record of each key, except keys whose last record has no value.

    Memory use grows with the number of keys. Records without a key are not rows of the table; their
    number is logged.

    Args:
        batches: All records of one partition in order, with their keys and values.
        columns: The requested columns.
        where: The partition, for messages.
    """
    import pyarrow as pa

    kept: list[pa.RecordBatch] = []
    new = keyless = 0
    limit = _TOGETHER
    for batch in batches:
        keyless += batch[KEY].null_count
        kept.append(batch)
        new += len(batch)
        if new >= limit:
            table = _compacted(pa.Table.from_batches(kept))
            kept, new, limit = table.to_batches(), 0, max(_TOGETHER, len(table))
    if keyless:
        log.warning("%s: %d records without a key are left out of the table", where, keyless)
    if kept:
        yield from _compacted(pa.Table.from_batches(kept)).select(columns).to_batches()


def _compacted(table: pa.Table) -> pa.Table:
    """Return the last row of each key, without keys whose last row has no value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = table.filter(pc.is_valid(table[KEY]))
    numbered = pa.table({KEY: table[KEY], "at": pa.array(range(len(table)), pa.int64())})
    last = numbered.group_by(KEY).aggregate([("at", "max")])["at_max"]
    found = table.take(last.sort())
    return found.filter(pc.is_valid(found[VALUE])).combine_chunks()
