"""Lets Spark find the data source by its name: it looks into every package `pyspark_*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.spark.versions import SparkVersionError

if TYPE_CHECKING:
    from kohort.spark import KohortDataSource as DefaultSource
else:
    try:
        from kohort.spark import KohortDataSource as DefaultSource
    except SparkVersionError:
        from kohort.spark.old_spark import RefusedDataSource as DefaultSource

__all__ = ["DefaultSource"]
