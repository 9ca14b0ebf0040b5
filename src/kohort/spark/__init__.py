"""Kafka consumer groups for Spark: the data source `kohort`, and exactly once into Delta Lake.

Importing this package changes nothing in the process. `configure` makes Spark's Python workers run
the current interpreter; functions that need this call it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kohort.extras import needed_by
from kohort.lazy import importer
from kohort.spark.environment import SparkVersionError, configure, session_config

if TYPE_CHECKING:
    from kohort.delta.append import AppendReport
    from kohort.delta.positions import DeltaAppendError
    from kohort.spark.checkpoint.log import CheckpointError
    from kohort.spark.completion.drain import DrainError, drain
    from kohort.spark.completion.listener import ListenerHandle, ListeningError, install
    from kohort.spark.completion.progress import SourceProgress, progress
    from kohort.spark.completion.sinks import SinkError, check_sink
    from kohort.spark.region.sink import region_sink
    from kohort.spark.source.datasource import KohortDataSource
    from kohort.spark.source.exclusive import ExclusiveGroupError
    from kohort.spark.source.fetch.ranges import RangeLostError
    from kohort.spark.source.lookup import DataLossError
    from kohort.spark.source.position_resolver import PositionConflictError
    from kohort.spark.source.query_state import GroupInUseError, MembershipLostError
    from kohort.spark.writer.append import append
    from kohort.spark.writer.delta import DeltaAppend
    from kohort.spark.writer.repeated_batches import RepeatedBatchError

__all__ = [
    "KohortDataSource",
    "append",
    "DeltaAppend",
    "AppendReport",
    "DeltaAppendError",
    "drain",
    "DrainError",
    "install",
    "ListenerHandle",
    "ListeningError",
    "CheckpointError",
    "SparkVersionError",
    "check_sink",
    "SinkError",
    "SourceProgress",
    "progress",
    "region_sink",
    "configure",
    "session_config",
    # errors of a query
    "DataLossError",
    "ExclusiveGroupError",
    "GroupInUseError",
    "MembershipLostError",
    "PositionConflictError",
    "RangeLostError",
    "RepeatedBatchError",
]

if not TYPE_CHECKING:  # a checker reads the imports above, and reports other names
    __getattr__, __dir__ = importer(
        __name__,
        __all__,
        {
            "AppendReport": "kohort.delta.append",
            "CheckpointError": ".checkpoint.log",
            "DeltaAppend": ".writer.delta",
            "DeltaAppendError": "kohort.delta.positions",
            "DrainError": ".completion.drain",
            "KohortDataSource": ".source.datasource",
            "ListenerHandle": ".completion.listener",
            "ListeningError": ".completion.listener",
            "SinkError": ".completion.sinks",
            "check_sink": ".completion.sinks",
            "DataLossError": ".source.lookup",
            "ExclusiveGroupError": ".source.exclusive",
            "GroupInUseError": ".source.query_state",
            "MembershipLostError": ".source.query_state",
            "PositionConflictError": ".source.position_resolver",
            "RangeLostError": ".source.fetch.ranges",
            "RepeatedBatchError": ".writer.repeated_batches",
            "SourceProgress": ".completion.progress",
            "append": ".writer.append",
            "drain": ".completion.drain",
            "install": ".completion.listener",
            "progress": ".completion.progress",
            "region_sink": ".region.sink",
        },
        partial(needed_by, "kohort.spark"),
    )
