"""The fixtures of `tests/spark`, for the tests that start Spark."""

from __future__ import annotations

from tests.spark.conftest import bootstrap, keep_signals, start, temporary_files, topic

__all__ = ["bootstrap", "keep_signals", "start", "temporary_files", "topic"]
