"""Kafka consumer groups for Spark: the data source `kohort`, and exactly once into Delta Lake.

Importing this package makes Spark's Python workers run the interpreter that imports it, unless
PYSPARK_PYTHON says otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kohort.extras import needed_by
from kohort.lazy import importer
from kohort.spark.environment import session_config, use_this_interpreter

if TYPE_CHECKING:
    from kohort.delta.append import AppendReport
    from kohort.delta.positions import DeltaAppendError
    from kohort.spark.appending import append
    from kohort.spark.checkpoints import CheckpointError
    from kohort.spark.delta import DeltaAppend
    from kohort.spark.listening import Listening, ListeningError, install
    from kohort.spark.region import region_sink
    from kohort.spark.sinks import SinkError
    from kohort.spark.source import KohortDataSource
    from kohort.spark.stopping import DrainError, drain
    from kohort.spark.versions import SparkVersionError
    from kohort.spark.watching import SourceProgress, progress

__all__ = [
    "KohortDataSource",
    "append",
    "DeltaAppend",
    "AppendReport",
    "DeltaAppendError",
    "drain",
    "DrainError",
    "install",
    "Listening",
    "ListeningError",
    "CheckpointError",
    "SparkVersionError",
    "SinkError",
    "SourceProgress",
    "progress",
    "region_sink",
    "session_config",
]

__getattr__ = importer(
    __name__,
    {
        "AppendReport": "kohort.delta.append",
        "CheckpointError": ".checkpoints",
        "DeltaAppend": ".delta",
        "DeltaAppendError": "kohort.delta.positions",
        "DrainError": ".stopping",
        "KohortDataSource": ".source",
        "SparkVersionError": ".versions",
        "Listening": ".listening",
        "ListeningError": ".listening",
        "SinkError": ".sinks",
        "SourceProgress": ".watching",
        "append": ".appending",
        "drain": ".stopping",
        "install": ".listening",
        "progress": ".watching",
        "region_sink": ".region",
    },
    partial(needed_by, "kohort.spark"),
)

use_this_interpreter()
