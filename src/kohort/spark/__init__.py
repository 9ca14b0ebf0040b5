"""Kafka consumer groups for Spark: the data source `kohort`, and exactly once into Delta Lake.

Importing this package makes Spark's Python workers run the interpreter that imports it, unless
PYSPARK_PYTHON says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer
from kohort.spark.environment import session_config, use_this_interpreter

if TYPE_CHECKING:
    from kohort.spark.delta import AppendReport, DeltaAppend, DeltaAppendError
    from kohort.spark.source import KohortDataSource
    from kohort.spark.stopping import DrainError, drain

__all__ = [
    "KohortDataSource",
    "DeltaAppend",
    "AppendReport",
    "DeltaAppendError",
    "drain",
    "DrainError",
    "session_config",
]

__getattr__ = importer(
    __name__,
    {
        "AppendReport": ".delta",
        "DeltaAppend": ".delta",
        "DeltaAppendError": ".delta",
        "DrainError": ".stopping",
        "KohortDataSource": ".source",
        "drain": ".stopping",
    },
)

use_this_interpreter()
