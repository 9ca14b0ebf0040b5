"""What a Spark that is too old finds under the name `kohort`: a source that says so.

Spark imports every package `pyspark_*` to look for sources, and finds none of them when one cannot
be imported. So this one can be, and refuses when it is used.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from kohort.spark.versions import check_spark


class RefusedDataSource(DataSource):
    """Says which version of Spark is needed.

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
        """Return what `format()` takes."""
        return "kohort"
