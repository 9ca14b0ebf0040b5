"""Kafka consumer groups for Spark: the data source `kohort`, and exactly once into Delta Lake.

Importing this package makes Spark's Python workers run the interpreter that imports it, unless
PYSPARK_PYTHON says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

_HOMES = {
    "AppendReport": "kohort.spark.delta",
    "DeltaAppend": "kohort.spark.delta",
    "DeltaAppendError": "kohort.spark.delta",
    "DrainError": "kohort.spark.stopping",
    "KohortDataSource": "kohort.spark.source",
    "drain": "kohort.spark.stopping",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: every Spark worker imports this package."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


use_this_interpreter()
