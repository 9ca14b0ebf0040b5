"""The source `kohort` for a Spark that is too old: it raises an error that says so.

Spark imports every package `pyspark_*` to look for sources, and finds none of them if one import
fails. So this one imports everywhere, and raises when it is used.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from kohort.spark.versions import check_spark


class RefusedDataSource(DataSource):
    """Raises an error that names the required version of Spark.

    Args:
        options: The options of the `load()`.

    Raises:
        SparkVersionError: Always.
    """

    def __init__(self, options: dict[str, str]) -> None:
        check_spark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to `format()`."""
        return "kohort"
