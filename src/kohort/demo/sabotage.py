"""A source for `kohort demo --sabotage` that commits before the sink has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.spark.options.checks import check_stream_options
from kohort.spark.source.datasource import KohortDataSource, KohortStreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from kohort.spark.checkpoint.manifest import OffsetJson


class EagerCommitDataSource(KohortDataSource):
    """The kohort source without its guarantee."""

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to `format()`."""
        return "kohort_sabotage"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's signature
        """Return the reader that commits too early."""
        check_stream_options(self._parsed)
        return EagerCommitReader(self._parsed)


class EagerCommitReader(KohortStreamReader):
    """Reports a batch as finished as soon as it is offered."""

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802  # Spark's name
        """Return the next batch, already committed to the group."""
        batch = super().latestOffset(start, limit)
        self.driver.finish(batch)
        return batch
