"""What `drain` makes of a query's progress reports."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import cast

from pyspark.sql.streaming.query import StreamingQuery

from kohort.spark.stopping import _controls


class Query:
    """A query whose reports are these, one after the other."""

    isActive = True  # noqa: N815  # Spark's name
    name = "flights"

    def __init__(self, *offsets: str | None) -> None:
        reports = [{"sources": [{"latestOffset": offset}]} for offset in offsets]
        self._reports = iter([None, *reports])

    @property
    def lastProgress(self) -> object:  # noqa: N802  # Spark's name
        return next(self._reports)


def test_a_batch_that_is_repeated_after_a_restart_has_no_latest_offset() -> None:
    """PySpark makes the text "null" of that."""
    query = Query("null", None, json.dumps({"control": "somewhere"}))
    deadline = time.monotonic() + 60
    assert _controls(cast("StreamingQuery", query), deadline) == [Path("somewhere")]
