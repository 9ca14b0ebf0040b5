"""Lets Spark find the data source by its name: it looks into every package `pyspark_*`.

Spark imports all of them, and finds none if one import fails. So this one imports with a Spark that
is too old, too, and its source raises an error that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.spark.environment import SparkVersionError, check_spark

if TYPE_CHECKING:
    from kohort.spark import KohortDataSource as DefaultSource
else:
    try:
        from kohort.spark import KohortDataSource as DefaultSource
    except SparkVersionError:
        from pyspark.sql.datasource import DataSource

        class DefaultSource(DataSource):
            """Raises an error that names the required version of Spark."""

            def __init__(self, options: dict[str, str]) -> None:
                check_spark()
                super().__init__(options)

            @classmethod
            def name(cls) -> str:
                """Return the name to pass to `format()`."""
                return "kohort"


__all__ = ["DefaultSource"]
