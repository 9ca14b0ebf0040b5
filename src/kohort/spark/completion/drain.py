"""Stops a query between two batches.

`StreamingQuery.stop` cancels the open batch, but the Python body of a `foreachBatch` runs to its
end: its rows are in the sink although Spark's log does not have the batch. `drain` stops a query
while no batch is open.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kohort.errors import KohortError
from kohort.spark.checkpoint.manifest import OffsetJson
from kohort.spark.completion.control import (
    Control,
    application_of_this_process,
    freeze,
    freeze_after,
    is_drained,
    is_drained_after,
    is_unique,
    sources_in,
    why_not_drained,
)
from kohort.spark.completion.progress import source_reports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.query import StreamingQuery

# The source's process needs only `Control`.
__all__ = ["Control", "DrainError", "drain"]

POLL_S = 0.05


class DrainError(KohortError):
    """A query could not be drained; it was stopped nevertheless."""


def drain(query: StreamingQuery, timeout_s: float = 120.0) -> None:
    """Let the open batch of a query finish, commit it to the group, and stop the query.

    Must run on the driver's machine, and outside the query's own `foreachBatch`.

    Args:
        query: A query that reads from the kohort source.
        timeout_s: Maximum time to wait for the open batch, in seconds.

    Raises:
        DrainError: The batch took longer, the query has no kohort source, or its process is on
            another machine; the query is stopped nevertheless. Or the call came from the query's
            own `foreachBatch`; then nothing is changed.
        StreamingQueryException: The query had failed.
    """
    _refuse_its_own_batch(query)
    deadline = time.monotonic() + timeout_s
    told = -1
    try:
        while query.isActive and not _is_drained(query):
            told = _notify_sources(query, told)
            _refuse_what_will_not_come(query)
            if time.monotonic() > deadline:
                raise DrainError(_too_late(query, timeout_s))
            time.sleep(POLL_S)
    finally:
        query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure


def _refuse_its_own_batch(query: StreamingQuery) -> None:
    """Refuse to wait for a batch in the thread that runs it.

    Raises:
        DrainError: This thread runs its `foreachBatch`.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001  # PySpark has no public access to it
    running = context and context.getLocalProperty("sql.streaming.queryId")
    if running is not None and running == str(query.id):
        raise DrainError(
            f"{query.name or query.id}: drain was called in the query's own foreachBatch, and "
            "would wait for the batch that calls it. Set a flag there, and drain in another thread"
        )


def _notify_sources(query: StreamingQuery, told: int) -> int:
    """Tell the sources that a batch is finished if no listener does.

    Spark itself does so only at the next trigger, which may be an hour away.

    Args:
        query: The query.
        told: The number of the last reported batch.

    Returns:
        The new number of the last reported batch.
    """
    from kohort.spark.completion import listener

    last = query.lastProgress
    session = listener.present_session()
    application = application_of_this_process()
    if last is None or last.batchId == told or session is None or application is None:
        return told
    if not listener.has_listener(query):  # a second message about a batch would hide the first
        listener.BatchListener(session, application).notify(last)
    return int(last.batchId)


def _refuse_what_will_not_come(query: StreamingQuery) -> None:
    """Stop waiting for a source that has failed.

    Raises:
        DrainError: A source has failed since its last batch; Spark would notice only at the next
            trigger.
    """
    for reason in map(why_not_drained, _controls(query)):
        if reason is not None and reason.is_final and query.isActive:
            raise DrainError(
                f"{query.name or query.id}: {reason.why}. The query is stopped; records "
                "that are not committed are read again when it starts"
            )


def _too_late(query: StreamingQuery, timeout_s: float) -> str:
    name = query.name or query.id
    if query.status["isTriggerActive"]:
        return (
            f"{name}: the open batch took longer than {timeout_s:g} s; it is cancelled now, and "
            "read again when the query starts. Set timeout_s to more than a batch takes"
        )
    found = map(why_not_drained, _controls(query))
    reasons = [reason.why for reason in found if reason is not None]
    return (
        f"{name}: its source has not confirmed within {timeout_s:g} s that all is committed to the "
        f"group, although no batch is open ({'; '.join(reasons) or 'the source gives no reason'}). "
        "The query is stopped; records that are not committed are read again when it starts"
    )


def _is_drained(query: StreamingQuery) -> bool:
    """Freeze the known sources of a query; return whether all are drained."""
    _refuse_other_sources(query)
    controls = _controls(query)
    if not controls:
        return _is_drained_after_its_batch(query)
    for control in controls:
        if not control.exists() and query.isActive:
            _refuse_other_machines(query, control)
        freeze(control)
    return all(map(is_drained, controls))


def _is_drained_after_its_batch(query: StreamingQuery) -> bool:
    """Freeze sources by the batches that they have offered: no progress report lists them yet."""
    application = application_of_this_process()
    ends = [end for end in _open_batches(query) if is_unique(end)]
    if application is None or not ends:
        return False
    sources = sources_in(application)
    for end in ends:
        freeze_after(sources, end)
    return all(any(is_drained_after(source, end) for source in sources) for end in ends)


def _controls(query: StreamingQuery) -> list[Path]:
    """Return the directories of the query's sources; empty until all are known."""
    progress = query.lastProgress
    controls = [report.control for report in source_reports(progress)] if progress else []
    found = [control for control in controls if control is not None]
    return found if len(found) == len(controls) else []


class _JavaOffset(Protocol):
    def json(self) -> str: ...


def _open_batches(query: StreamingQuery) -> Iterator[OffsetJson]:
    """Yield the manifests of the query's latest batch, one for each source."""
    wrapper = getattr(query, "_jsq", None)  # a query of Spark Connect has none
    if wrapper is None:
        return
    offsets = wrapper.streamingQuery().availableOffsets().values().iterator()
    while offsets.hasNext():
        offset: _JavaOffset = offsets.next()
        read = json.loads(offset.json())
        if isinstance(read, dict):
            yield read


def _refuse_other_sources(query: StreamingQuery) -> None:
    """Refuse a query that has no source to drain.

    Raises:
        DrainError: It has no kohort source.
    """
    progress = query.lastProgress
    if progress is not None and progress.sources and not source_reports(progress):
        raise DrainError(
            f"{query.name or query.id} has no kohort source, so there is nothing to drain; "
            "it is stopped. Use query.stop() for it"
        )


def _refuse_other_machines(query: StreamingQuery, control: Path) -> None:
    """Refuse a query whose driver is on another machine.

    Raises:
        DrainError: The directory of the query's source does not exist here.
    """
    if application_of_this_process() is None:
        raise DrainError(
            f"{query.name or query.id}: {control} is not here, so its driver is another machine, "
            "where drain cannot reach. The query is stopped at once; what its open batch has read "
            "is read again when it starts"
        )
