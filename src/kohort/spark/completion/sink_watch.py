"""Checks the sinks of an application's queries: whether a batch may be committed to the group.

A file sink skips a batch silently, and the query continues as if the records were written. The
listener of `kohort.spark.install` checks the sink after each batch, and notifies the query's
source.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from msgspec import Struct

from kohort.spark.completion.sinks import Finding, check_sink, directory_digest, file_sink_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

log = logging.getLogger("kohort.spark")


class Verdict(Struct, frozen=True):
    """The result of a check of a query's sink after a batch.

    Attributes:
        sink: Digest of the directory of its file sink; empty for every other sink.
        refusal: Why the batch must not be committed; empty if it may be.
        checkpoint: The query's checkpointLocation; empty if Spark does not expose it.
    """

    sink: str = ""
    refusal: str = ""
    checkpoint: str = ""


class SinkWatch:
    """Tracks the sinks of all queries that run in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Checkpoints of the runs, the runs whose first batch was checked, and the query that writes
        # to each directory.
        self._checkpoints: dict[str, str] = {}
        self._seen: set[str] = set()
        self._owners: dict[str, tuple[str, str]] = {}

    def started(self, run_id: str, checkpoint: str | None) -> None:
        """Record the start of a run.

        Args:
            run_id: The run of the query.
            checkpoint: Its checkpointLocation; None if Spark does not expose it.
        """
        with self._lock:
            if checkpoint is not None:
                self._checkpoints[run_id] = checkpoint

    def ended(self, run_id: str) -> None:
        """Forget a run."""
        with self._lock:
            self._checkpoints.pop(run_id, None)
            self._seen.discard(run_id)
            self._owners = {d: owner for d, owner in self._owners.items() if owner[1] != run_id}

    def knows(self, run_id: str) -> bool:
        """Whether the checkpoint of a run is known."""
        with self._lock:
            return run_id in self._checkpoints

    def look(self, progress: StreamingQueryProgress) -> Verdict:
        """Check a query's sink after a batch.

        It checks the first batch of a run, and each batch of which Spark has read no rows: a
        skipped batch is not read. So it does not query the sink's store for every batch.

        Args:
            progress: Spark's progress report of the batch.
        """
        directory = file_sink_directory(progress.sink.description)
        if directory is None:
            return Verdict()
        sink = directory_digest(directory)
        query, run = str(progress.id), str(progress.runId)
        with self._lock:
            owner = self._owners.setdefault(sink, (query, run))
            is_first = run not in self._seen
            self._seen.add(run)
            checkpoint = self._checkpoints.get(run)
        refusal = ""
        if owner[0] != query:
            refusal = _shared(directory, owner[0], progress.batchId)
        elif is_first or not progress.numInputRows:
            refusal = _refusal(progress, checkpoint, directory, warns=is_first)
        return Verdict(sink, refusal, checkpoint or "")


def checkpoint_of(spark: SparkSession, query_id: str) -> str | None:
    """Return the checkpointLocation of a running query; None if Spark does not expose it.

    Args:
        spark: A session of the query's application.
        query_id: The query.
    """
    from py4j.protocol import Py4JError

    try:
        state = spark._jsparkSession.sharedState()  # noqa: SLF001  # PySpark has no public access to it
        for query in state.activeStreamingQueries().values():
            if str(query.id()) == query_id:
                return str(query.resolvedCheckpointRoot())
    except (Py4JError, AttributeError, TypeError) as error:
        log.info("this version of Spark does not say where checkpoints are: %s", error)
    return None


def _refusal(
    progress: StreamingQueryProgress, checkpoint: str | None, directory: str, *, warns: bool
) -> str:
    """Return why the batch must not be committed; warn once per run if that is unknown."""
    finding: Finding | None
    if checkpoint is None:
        finding = Finding(
            "unseen",
            directory,
            progress.batchId,
            f"{directory}: Spark does not say where the query's checkpoint is, so it is unknown "
            "whether its file sink skips batches; make sure that no other query writes there",
        )
    else:
        finding = check_sink(progress.sink.description, checkpoint, progress.batchId)
    if finding is None:
        return ""
    if finding.problem == "skipped":
        return finding.text
    if warns:
        log.warning("query %s: %s", progress.name or progress.id, finding.text)
    return ""


def _shared(directory: str, owner: str, batch_id: int) -> str:
    return (
        f"query {owner} of this application writes to {directory} too, and Spark's file sink skips "
        f"every batch whose number is in {directory}/_spark_metadata already: batch {batch_id} may "
        "be one. Give each query a directory of its own; applications that share a group share a "
        "table with DeltaAppend"
    )
