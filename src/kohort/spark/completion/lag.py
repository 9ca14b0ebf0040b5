"""The state of all queries of this process, from their progress reports, with lag in time.

A report has the number of records that a query is behind, but not their age. The end offsets in
earlier reports give an estimate: the next record to read arrived between the last report whose end
precedes it and the first one whose end follows it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct, field

from kohort.spark.completion.progress import SourceReport
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

SAMPLES_MAX = 512


class LagClock:
    """The history of one partition's end offset."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []

    def note(self, at_s: float, end: int, position: int) -> None:
        """Record the partition's end, and drop entries that no position needs any more.

        Args:
            at_s: The time, in seconds.
            end: Offset after the last record.
            position: The next offset to read.
        """
        if self._samples and end < self._samples[-1][1]:  # the topic was recreated
            self._samples.clear()
        self._samples.append((at_s, end))
        while len(self._samples) > 1 and self._samples[1][1] <= position:
            del self._samples[0]
        if len(self._samples) > SAMPLES_MAX:
            del self._samples[1:-1:2]

    def seconds_behind(self, now_s: float, position: int) -> float:
        """Return the age of the record at `position` in seconds, or 0 if it did not exist yet.

        It is an estimate, and a lower bound if the record is older than the first entry.

        Args:
            now_s: The current time, in seconds.
            position: The next offset to read.
        """
        before: tuple[float, int] | None = None
        for at_s, end in self._samples:
            if end > position:
                return max(now_s - _between(before, (at_s, end), position), 0.0)
            before = (at_s, end)
        return 0.0


def _between(before: tuple[float, int] | None, after: tuple[float, int], position: int) -> float:
    if before is None:
        return after[0]
    share = (position - before[1]) / (after[1] - before[1])
    return before[0] + share * (after[0] - before[0])


class PartitionLag(Struct, frozen=True):
    """A query's lag in one partition.

    Attributes:
        query: The query's name, or its id.
        operator: Name of its member in the group.
        partition: The partition.
        records: Number of unread records.
        seconds: Age of the first unread record in seconds; 0 if there is none.
    """

    query: str
    operator: str
    partition: TopicPartition
    records: int
    seconds: float


class QueryState(Struct):
    """The state of one run of one query, from its reports.

    Attributes:
        query_id: The query's id, which it keeps when it is restarted.
        name: Its name, or its id.
        batches: Number of batches finished in this run.
        rows: Number of records in them.
        batch_seconds: Duration of the last trigger.
        last_batch_s: When the last batch began, in seconds since 1970.
        sources: The last report of each kohort source.
        clocks: End offsets of each source's partitions.
    """

    query_id: str
    name: str
    batches: int = 0
    rows: int = 0
    batch_seconds: float = 0.0
    last_batch_s: float = 0.0
    sources: list[SourceReport] = field(default_factory=list)
    clocks: dict[tuple[str, TopicPartition], LagClock] = field(default_factory=dict)


class QueryStates:
    """The queries of this process that have a kohort source; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, QueryState] = {}
        self._failed: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def started(self, query_id: str, name: str | None) -> None:
        """Record that a query is running, perhaps again after a failure.

        Args:
            query_id: Its id.
            name: Its name; None: it has none.
        """
        with self._lock:
            self._failed.pop(query_id, None)
            self._names[query_id] = name or query_id

    def note(self, progress: StreamingQueryProgress, reports: list[SourceReport]) -> None:
        """Record that a batch has finished.

        Args:
            progress: Spark's report.
            reports: Its reports of the kohort sources.
        """
        query_id, name = str(progress.id), progress.name or str(progress.id)
        with self._lock:
            state = self._runs.setdefault(str(progress.runId), QueryState(query_id, name))
            state.batches += 1
            state.rows += progress.numInputRows or 0
            state.batch_seconds = progress.durationMs.get("triggerExecution", 0) / 1000
            state.last_batch_s = datetime.fromisoformat(progress.timestamp).timestamp()
            state.sources = reports
            for report in reports:
                _note_ends(state, report)

    def ended(self, run_id: str, query_id: str, error: str | None) -> str | None:
        """Record that a query has ended.

        Args:
            run_id: Its run.
            query_id: Its id.
            error: Why it failed; None: it was stopped.

        Returns:
            A message about the failure of a query that has read from a kohort source, otherwise
            None.
        """
        with self._lock:
            has_read = self._runs.pop(run_id, None) is not None
            name = self._names.pop(query_id, query_id)
            if error is None:
                return None
            self._failed[query_id] = f"query {name} has failed: {_explained(error)}"
            return self._failed[query_id] if has_read else None

    def queries(self) -> list[QueryState]:
        """Return the state of the running queries."""
        with self._lock:
            return list(self._runs.values())

    def failures(self) -> list[str]:
        """Return the failures of queries that were not restarted."""
        with self._lock:
            return list(self._failed.values())

    def lags(self, now_s: float) -> list[PartitionLag]:
        """Return the lags of the queries, as far as known.

        Args:
            now_s: The current time, in seconds since 1970.
        """
        with self._lock:
            return [
                _lag(state, report, partition, now_s, records)
                for state in self._runs.values()
                for report in state.sources
                for partition, records in sorted(report.lags.items())
            ]


def _explained(error: str) -> str:
    """Return a one-line description of a Spark error."""
    line = error.splitlines()[0][:300]
    if not line.startswith("java.io.EOFException"):
        return line
    return (
        f"{line}: a Python process that Spark had started for it has ended, perhaps killed for the "
        "memory it used (see the kernel's log); restart the query"
    )


def _note_ends(state: QueryState, report: SourceReport) -> None:
    ends: Mapping[TopicPartition, int] = report.ends or {}
    positions = report.positions
    for partition in report.lags:
        clock = state.clocks.setdefault((report.manifest.operator, partition), LagClock())
        clock.note(state.last_batch_s, ends[partition], positions[partition])


def _lag(
    state: QueryState, report: SourceReport, partition: TopicPartition, now_s: float, records: int
) -> PartitionLag:
    operator = report.manifest.operator
    clock = state.clocks[operator, partition]
    seconds = clock.seconds_behind(now_s, report.positions[partition]) if records else 0.0
    return PartitionLag(state.name, operator, partition, records, seconds)
