"""Tells the source that a batch is finished as soon as Spark reports it.

Spark asks a source for the next batch at the next trigger, and only then does the source learn that
the last one is in the sink. With a trigger every ten minutes, a finished batch looks open for ten
minutes, and a rebalance waits for it. A listener in the application is notified when each batch
finishes, and notifies the source's process.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from kohort.errors import KohortError
from kohort.spark.completion.control import (
    LISTENING,
    BatchDone,
    ControlError,
    application_of_this_process,
    is_unique,
    notify,
    sources_in,
)
from kohort.spark.completion.lag import QueryStates
from kohort.spark.completion.metrics import Exporter, MetricsError
from kohort.spark.completion.progress import SourceReport, source_reports
from kohort.spark.completion.sink_watch import SinkWatch, Verdict, checkpoint_of
from kohort.spark.environment import (
    SparkVersionError,
    check_spark,
    log_like_spark,
    use_this_interpreter,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("kohort.spark")


class ListeningError(KohortError):
    """A listener cannot be installed in this session."""


class ListenerHandle:
    """A handle for the listener and server that `install` has added to a session.

    Args:
        spark: The session.
        application: The directory of its sources.
    """

    def __init__(self, spark: SparkSession, application: Path) -> None:
        self._spark = spark
        self._mark = application / LISTENING
        self.listener = BatchListener(spark, application)
        spark.streams.addListener(self.listener)
        self._mark.touch()

    @property
    def metrics_port(self) -> int | None:
        """The port on which this process serves metrics; None if it does not."""
        return _exporters[0].port if _exporters else None

    def close(self) -> None:
        """Stop listening; sources are then notified of finished batches at the next trigger."""
        _installed.pop(_session_id(self._spark), None)
        if not _installed:
            self._mark.unlink(missing_ok=True)
            while _exporters:
                _exporters.pop().close()
        self._spark.streams.removeListener(self.listener)


class BatchListener(StreamingQueryListener):
    """Tells the source's process that a batch is finished.

    Args:
        spark: The session with the queries.
        application: The directory of the sources.
    """

    def __init__(self, spark: SparkSession, application: Path) -> None:
        self._spark = spark
        self._application = application

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        """Record that the query is running, perhaps again; no batch is finished."""
        _states.started(str(event.id), event.name)
        _sinks.started(str(event.runId), checkpoint_of(self._spark, str(event.id)))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        """Tell the source that a batch is in the sink and in Spark's commit log."""
        reports = self.notify(event.progress)
        if reports:
            _states.note(event.progress, reports)

    def notify(self, progress: StreamingQueryProgress) -> list[SourceReport]:
        """Tell the sources of a query that the batch of a progress report is finished.

        Returns:
            The report's entries for them.
        """
        reports = source_reports(progress)
        if reports:
            verdict = self._look(progress)
            for report in reports:
                self._notify(progress, report, verdict)
        return reports

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        """Do nothing: the last batch was already reported."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        """Tell the source nothing: a failed batch is not finished."""
        failure = _states.ended(str(event.runId), str(event.id), event.exception)
        if failure is not None:
            log.error("%s", failure)
        _sinks.ended(str(event.runId))

    def _look(self, progress: StreamingQueryProgress) -> Verdict:
        """Check the query's sink, and log refusals of the source in the application."""
        query, run = str(progress.id), str(progress.runId)
        if not _sinks.knows(run):  # a query that had started before
            _sinks.started(run, checkpoint_of(self._spark, query))
        verdict = _sinks.look(progress)
        if verdict.refusal:
            log.error("query %s: %s", progress.name or query, verdict.refusal)
        return verdict

    def _notify(
        self, progress: StreamingQueryProgress, report: SourceReport, verdict: Verdict
    ) -> None:
        done = BatchDone(
            str(progress.runId),
            progress.batchId,
            report.end,
            bool(progress.stateOperators),
            verdict.sink,
            verdict.refusal,
            verdict.checkpoint,
        )
        if report.control is not None:
            notify([report.control], done)
        elif is_unique(report.end):  # a replayed batch: its source is unknown
            notify(sources_in(self._application), done)
        else:
            log.info(
                "batch %d of %s was repeated from a checkpoint of an older version and cannot be "
                "identified; its source learns that it is finished at the next trigger",
                progress.batchId,
                progress.name or progress.id,
            )


# The state of all queries of this process, and the listeners of all sessions.
_installed: dict[str, ListenerHandle] = {}
_states = QueryStates()
_sinks = SinkWatch()
_exporters: list[Exporter] = []


def install(
    spark: SparkSession, *, metrics_port: int | None = None, metrics_host: str = "127.0.0.1"
) -> ListenerHandle:
    """Notify the sources of a session's queries as soon as a batch is finished.

    Call it once for each session, before the session starts queries; a second call has no effect.
    Without it a finished batch looks open until the next trigger, and a query must be alone in its
    group unless its source has the option `checkpointLocation`.

    Args:
        spark: A session of the driver's own process, not of Spark Connect.
        metrics_port: Port on which to serve metrics for Prometheus and `/healthz`; 0: any free
            port. One server serves all sessions. Needs the extra `kohort[metrics]`.
        metrics_host: Address to listen on: by default only this machine, "0.0.0.0" for all
            interfaces.

    Returns:
        A handle with which to remove the listener; closing it is optional.

    Raises:
        SparkVersionError: Spark is too old.
        ListeningError: The session is a Spark Connect session.
        MetricsError: prometheus_client is missing, the port is taken, or metrics are already served
            on another port.
        ControlError: The directory for messages is unsafe or cannot be created.
    """
    check_spark()
    _refuse_connect(spark)
    use_this_interpreter()
    log_like_spark()
    session = _session_id(spark)
    if session not in _installed:
        application = application_of_this_process()
        assert application is not None, "a session with a JVM has one"
        _installed[session] = ListenerHandle(spark, application)
    if metrics_port is not None:
        _serve(metrics_host, metrics_port)
    return _installed[session]


def install_where_possible(spark: SparkSession | None) -> None:
    """Call `install` for a sink that may share its group; log if that is not possible.

    Args:
        spark: The session that starts the query; None if there is none yet.
    """
    if spark is None or not hasattr(spark, "_jsparkSession"):  # Spark Connect
        return
    try:
        install(spark)
    except SparkVersionError:  # nor can it run the source
        return
    except ControlError as error:
        log.warning("kohort.spark.install is not possible here: %s", error)


def present_session() -> SparkSession | None:
    """Return this thread's session, or else the first session created by this process."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001  # of another thread


def has_listener(query: StreamingQuery) -> bool:
    """Whether the session that has started a query has a listener."""
    wrapper = getattr(query, "_jsq", None)  # a query of Spark Connect has none
    return wrapper is not None and str(wrapper.sparkSession().sessionUUID()) in _installed


def _serve(host: str, port: int) -> None:
    """Serve the metrics of all sessions, unless they are already served there."""
    if not _exporters:
        _exporters.append(Exporter(_states, host, port))
    elif _exporters[0].asked != (host, port):
        raise MetricsError(
            f"this process serves its metrics at {':'.join(map(str, _exporters[0].asked))}, for "
            f"all its sessions; it cannot at {host}:{port} too"
        )


def _session_id(spark: SparkSession) -> str:
    session: str = spark._jsparkSession.sessionUUID()  # noqa: SLF001  # PySpark has no public access to it
    return session


def _refuse_connect(spark: SparkSession) -> None:
    if spark is None:
        raise ListeningError(
            "kohort.spark.install needs a session, and got None: this thread has no active session."
            " Pass the one that your program created"
        )
    if not hasattr(spark, "_jsparkSession"):
        raise ListeningError(
            "kohort.spark.install needs a session in the driver's own process: a listener of Spark "
            "Connect runs in the client, and the source's process is on the server. Set the "
            "source's option checkpointLocation to the query's checkpointLocation instead; the "
            "source then sees there when a batch is finished"
        )
