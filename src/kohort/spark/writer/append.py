"""Appends a stream to a Delta table in one call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from kohort.delta.append import DeltaOptions
from kohort.spark.completion.listener import install_where_possible
from kohort.spark.writer.delta import DeltaAppend, arrow_schema, check_key_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

GROUP_OPTION = "kafka.group.id"


def append(
    stream: DataFrame,
    table: str | Path,
    *,
    checkpoint: str | Path,
    group_id: str | None = None,
    every: str | None = None,
    available_now: bool = False,
    name: str | None = None,
    **options: Unpack[DeltaOptions],
) -> StreamingQuery:
    """Start a query that appends a stream to a Delta table, each record once.

    It calls `install` for the stream's session, so that the query may share its group.

    Args:
        stream: A streaming DataFrame that still has `topic`, `partition` and `offset`.
        table: The table's location, see `DeltaAppend`.
        checkpoint: The query's `checkpointLocation`, a different one for each query.
        group_id: The consumer group; None: the group of the stream's source, which Spark Connect
            does not expose.
        every: Trigger interval such as `10 seconds`; None: as soon as the last batch is done.
        available_now: Whether to stop once all records present at the start have been read.
        name: The query's name.
        **options: The optional arguments of `DeltaAppend`, such as `storage_options`.

    Returns:
        The running query; `drain(query)` ends it.

    Raises:
        ValueError: An argument is invalid, the stream lacks a column, or its group is unknown.
        DeltaAppendError: A Delta table cannot have a column's type, or `partition_by` names a
            column that the stream lacks.
    """
    if not stream.isStreaming:
        raise ValueError("append needs a stream (spark.readStream); this DataFrame is a batch")
    if every is not None and available_now:
        raise ValueError("every and available_now exclude each other")
    check_key_columns(stream.columns)
    sink = DeltaAppend(table, group_id or group_of(stream), **options)
    sink.check(arrow_schema(stream.schema, str(table)))
    install_where_possible(stream.sparkSession)
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    if name is not None:
        writer = writer.queryName(name)
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=every or "0 seconds").start()


def group_of(stream: DataFrame) -> str:
    """Return the consumer group of a stream's source.

    Args:
        stream: A streaming DataFrame.

    Raises:
        ValueError: There is none or more than one, or Spark Connect hides it.
    """
    groups = sorted(_groups(stream))
    if len(groups) == 1:
        return groups[0]
    if groups:
        raise ValueError(
            f"the stream reads with the groups {', '.join(groups)}; pass group_id to say under "
            "which one the table keeps its positions"
        )
    raise ValueError(f"the stream's {GROUP_OPTION} cannot be found: pass group_id")


def _groups(stream: DataFrame) -> set[str]:
    plan = getattr(stream, "_jdf", None)
    if plan is None:  # Spark Connect
        return set()
    found = set()
    leaves = plan.queryExecution().analyzed().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        # Other leaves, such as static tables of a join, have no options of a stream.
        if leaf.getClass().getSimpleName() == "StreamingRelationV2":
            found.add(leaf.extraOptions().get(GROUP_OPTION))
    return found - {None}
