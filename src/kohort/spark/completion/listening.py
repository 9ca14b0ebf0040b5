"""Telling the source that a batch is over, as soon as Spark says so.

Spark asks a source for the next batch at the next trigger, and only that tells the source that the
last one is in the sink. With a trigger every ten minutes a finished batch looks open for ten
minutes, and a rebalance waits for it. A listener in the application hears of each batch when it is
over, and passes it on to the source's process.
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
    ControlError,
    Word,
    application_of_this_process,
    is_unique,
    say,
    sources_in,
)
from kohort.spark.completion.lag import Board
from kohort.spark.completion.metrics import Exporter, MetricsError
from kohort.spark.completion.progress import SourceReport, source_reports
from kohort.spark.completion.sink_watch import SinkWatch, Verdict, checkpoint_of
from kohort.spark.environment import log_like_spark
from kohort.spark.versions import SparkVersionError, check_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("kohort.spark")


class ListeningError(KohortError):
    """Batches of this session cannot be listened to."""


class Listening:
    """What `install` has put into a session.

    Args:
        spark: The session.
        application: The directory in which its sources are found.
    """

    def __init__(self, spark: SparkSession, application: Path) -> None:
        self._spark = spark
        self._mark = application / LISTENING
        self.listener = BatchListener(spark, application)
        spark.streams.addListener(self.listener)
        self._mark.touch()

    @property
    def metrics_port(self) -> int | None:
        """The port at which this process serves metrics, None when it does not."""
        return _exporters[0].port if _exporters else None

    def close(self) -> None:
        """Stop listening; sources learn of a batch's end at the next trigger again."""
        _installed.pop(_session_id(self._spark), None)
        if not _installed:
            self._mark.unlink(missing_ok=True)
            while _exporters:
                _exporters.pop().close()
        self._spark.streams.removeListener(self.listener)


class BatchListener(StreamingQueryListener):
    """Passes on to the source's process that a batch is over.

    Args:
        spark: The session whose queries are listened to.
        application: The directory in which the sources are found.
    """

    def __init__(self, spark: SparkSession, application: Path) -> None:
        self._spark = spark
        self._application = application

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        """Take note that the query runs, again perhaps; no batch is over."""
        _board.started(str(event.id), event.name)
        _sinks.started(str(event.runId), checkpoint_of(self._spark, str(event.id)))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        """Pass on that a batch is in the sink and in Spark's commit log."""
        reports = self.tell(event.progress)
        if reports:
            _board.note(event.progress, reports)

    def tell(self, progress: StreamingQueryProgress) -> list[SourceReport]:
        """Tell the sources of a query that the batch of a progress report is over.

        Returns:
            What the report says of them.
        """
        reports = source_reports(progress)
        if reports:
            verdict = self._look(progress)
            for report in reports:
                self._tell(progress, report, verdict)
        return reports

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        """Do nothing: the last batch was over before."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        """Say nothing to the source: a batch that failed is not over."""
        failure = _board.ended(str(event.runId), str(event.id), event.exception)
        if failure is not None:
            log.error("%s", failure)
        _sinks.ended(str(event.runId))

    def _look(self, progress: StreamingQueryProgress) -> Verdict:
        """Look at the query's sink, and say in the application's log what the source refuses."""
        query, run = str(progress.id), str(progress.runId)
        if not _sinks.knows(run):  # a query that had begun before
            _sinks.started(run, checkpoint_of(self._spark, query))
        verdict = _sinks.look(progress)
        if verdict.refusal:
            log.error("query %s: %s", progress.name or query, verdict.refusal)
        return verdict

    def _tell(
        self, progress: StreamingQueryProgress, report: SourceReport, verdict: Verdict
    ) -> None:
        word = Word(
            str(progress.runId),
            progress.batchId,
            report.end,
            bool(progress.stateOperators),
            verdict.sink,
            verdict.refusal,
            verdict.checkpoint,
        )
        if report.control is not None:
            say([report.control], word)
        elif is_unique(report.end):  # a repeated batch: which source is this query's is not known
            say(sources_in(self._application), word)
        else:
            log.info(
                "batch %d of %s was repeated from a checkpoint of an older version, which nothing "
                "tells from others; its source learns of its end at the next trigger",
                progress.batchId,
                progress.name or progress.id,
            )


# What is known of all queries of this process, by session, and of all sessions.
_installed: dict[str, Listening] = {}
_board = Board()
_sinks = SinkWatch()
_exporters: list[Exporter] = []


def install(
    spark: SparkSession, *, metrics_port: int | None = None, metrics_host: str = "127.0.0.1"
) -> Listening:
    """Have the sources of a session's queries know at once when a batch is over.

    Call it once for each session that starts queries, before it does; a second call changes
    nothing. Without it a finished batch looks open until the next trigger, and a query must be
    alone in its group, unless its source has the option `checkpointLocation`.

    Args:
        spark: A session of the driver's own process, not of Spark Connect.
        metrics_port: Serve metrics for Prometheus and `/healthz` at this port, 0 for one that is
            free; there is one server for all sessions. Needs the extra `kohort[metrics]`.
        metrics_host: Where to serve them: by default only on this machine, "0.0.0.0" for all.

    Returns:
        A handle to close it again, which is optional.

    Raises:
        SparkVersionError: Spark is too old.
        ListeningError: The session is one of Spark Connect.
        MetricsError: prometheus_client is missing, the port is taken, or metrics are served at
            another one already.
        ControlError: The directory for the words cannot be trusted or made.
    """
    check_spark()
    _refuse_connect(spark)
    log_like_spark()
    session = _session_id(spark)
    if session not in _installed:
        application = application_of_this_process()
        assert application is not None, "a session with a JVM has one"
        _installed[session] = Listening(spark, application)
    if metrics_port is not None:
        _serve(metrics_host, metrics_port)
    return _installed[session]


def install_where_possible(spark: SparkSession | None) -> None:
    """Do what `install` does, for a sink that may share its group; where it cannot, say so.

    Args:
        spark: The session that starts the query; None where there is none yet.
    """
    if spark is None or not hasattr(spark, "_jsparkSession"):  # Spark Connect
        return
    try:
        install(spark)
    except SparkVersionError:  # one that cannot run the source either
        return
    except ControlError as error:
        log.warning("kohort.spark.install is not possible here: %s", error)


def present_session() -> SparkSession | None:
    """Return the session of this thread, or else the one that this process made first."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001  # of another thread


def hears(query: StreamingQuery) -> bool:
    """Whether the session that has started a query has a listener."""
    wrapper = getattr(query, "_jsq", None)  # one of Spark Connect has none
    return wrapper is not None and str(wrapper.sparkSession().sessionUUID()) in _installed


def _serve(host: str, port: int) -> None:
    """Serve the metrics of all sessions, unless they are served there already."""
    if not _exporters:
        _exporters.append(Exporter(_board, host, port))
    elif _exporters[0].asked != (host, port):
        raise MetricsError(
            f"this process serves its metrics at {':'.join(map(str, _exporters[0].asked))}, for "
            f"all its sessions; it cannot at {host}:{port} too"
        )


def _session_id(spark: SparkSession) -> str:
    session: str = spark._jsparkSession.sessionUUID()  # noqa: SLF001  # PySpark has no other way to it
    return session


def _refuse_connect(spark: SparkSession) -> None:
    if not hasattr(spark, "_jsparkSession"):
        raise ListeningError(
            "kohort.spark.install needs a session in the driver's own process: a listener of Spark "
            "Connect runs in the client, and the source's process is on the server. Set the "
            "source's option checkpointLocation to the query's checkpointLocation instead; the "
            "source then sees there when a batch is over"
        )
