"""Stopping a query between two batches.

`StreamingQuery.stop` cancels the open batch, but the Python body of a `foreachBatch` runs on to
its end: its rows are in the sink although Spark's log says that the batch was not. `drain` stops
where nothing is open.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.errors import KohortError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

FREEZE = "freeze"
DRAINED = "drained"
POLL_S = 0.02


class DrainError(KohortError):
    """A query could not be drained; it was stopped all the same."""


class Control:
    """How the application reaches the source's process: a directory that both can see."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kohort-source-"))

    @property
    def frozen(self) -> bool:
        """Whether no more batches are wanted."""
        return (self.directory / FREEZE).exists()

    def acknowledge(self) -> None:
        """Say that no batch is open and none will be."""
        (self.directory / DRAINED).touch()

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)


def drain(query: StreamingQuery, timeout_s: float = 120.0) -> None:
    """Let the open batch of a query finish, commit it to the group, and stop the query.

    Must run on the driver's machine. The query needs a trigger to notice, so it takes up to one
    trigger interval longer than the batch.

    Args:
        query: A query that reads from the kohort source.
        timeout_s: Longest time to wait for the open batch.

    Raises:
        DrainError: The batch took longer; the query is stopped nevertheless.
        StreamingQueryException: The query had failed.
    """
    deadline = time.monotonic() + timeout_s
    try:
        directories = _controls(query, deadline)
        for directory in directories:
            (directory / FREEZE).touch()
        for directory in directories:
            _wait_for(directory / DRAINED, query, deadline)
    finally:
        query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure


def _wait_for(file: Path, query: StreamingQuery, deadline: float) -> None:
    while query.isActive and not file.exists():
        if time.monotonic() > deadline:
            raise DrainError(f"{query.name or query.id}: the open batch did not end in time")
        time.sleep(POLL_S)


def _controls(query: StreamingQuery, deadline: float) -> list[Path]:
    """Return the control directories of the query's sources, once its progress names them."""
    while query.isActive:
        progress = query.lastProgress
        if progress is not None:
            # a batch that is repeated after a restart has none, which PySpark writes as "null"
            reports = [json.loads(s["latestOffset"] or "null") or {} for s in progress["sources"]]
            found = [Path(report["control"]) for report in reports if "control" in report]
            if found:
                return found
        if time.monotonic() > deadline:
            raise DrainError(f"{query.name or query.id}: its first batch did not end in time")
        time.sleep(POLL_S)
    return []
