"""Metrics of this process's queries for Prometheus, over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from kohort.errors import KohortError
from kohort.spark.completion.lag import QueryStates

if TYPE_CHECKING:
    from prometheus_client import Metric

QUERY = ("query",)
SOURCE = ("query", "operator")
PARTITION = ("query", "operator", "topic", "partition")


class MetricsError(KohortError):
    """Metrics cannot be served."""


class Exporter:
    """Serves `/metrics` and `/healthz` until it is closed.

    Args:
        states: The state of the queries.
        host: Address to listen on.
        port: Port to listen on; 0: any free port.

    Raises:
        MetricsError: prometheus_client is not installed, or the port is taken.
    """

    def __init__(self, states: QueryStates, host: str, port: int) -> None:
        self.asked = (host, port)
        self._server = _server(states, host, port)
        threading.Thread(
            target=self._server.serve_forever, name="kohort-metrics", daemon=True
        ).start()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._server.server_port

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()


class QueryCollector:
    """Converts the state of queries to Prometheus metrics.

    Args:
        states: The state of the queries.
    """

    def __init__(self, states: QueryStates) -> None:
        self._states = states

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        yield from self._lags()
        yield from self._batches()
        yield from self._members()

    def _lags(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        records = GaugeMetricFamily(
            "kohort_spark_offsets_behind_latest",
            "Unread records of the partition when the query's last batch was planned.",
            labels=PARTITION,
        )
        seconds = GaugeMetricFamily(
            "kohort_spark_seconds_behind_latest",
            "Age of the first unread record of the partition (estimated).",
            labels=PARTITION,
        )
        for lag in self._states.lags(time.time()):
            topic, partition = lag.partition
            labels = (lag.query, lag.operator, topic, str(partition))
            records.add_metric(labels, lag.records)
            seconds.add_metric(labels, lag.seconds)
        yield records
        yield seconds

    def _batches(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        duration = GaugeMetricFamily(
            "kohort_spark_batch_duration_seconds",
            "Duration of the query's last trigger that ran a batch.",
            labels=QUERY,
        )
        began = GaugeMetricFamily(
            "kohort_spark_last_batch_timestamp_seconds",
            "When the query's last batch began.",
            labels=QUERY,
        )
        batches = CounterMetricFamily(
            "kohort_spark_batches", "Finished batches of the query.", labels=QUERY
        )
        rows = CounterMetricFamily(
            "kohort_spark_records", "Records in finished batches.", labels=QUERY
        )
        for query in self._states.queries():
            duration.add_metric((query.name,), query.batch_seconds)
            began.add_metric((query.name,), query.last_batch_s)
            batches.add_metric((query.name,), query.batches)
            rows.add_metric((query.name,), query.rows)
        yield from (duration, began, batches, rows)

    def _members(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        owned = GaugeMetricFamily(
            "kohort_spark_owned_partitions",
            "Partitions that the query owned when its last batch was planned.",
            labels=SOURCE,
        )
        epoch = GaugeMetricFamily(
            "kohort_spark_group_epoch", "Generation or epoch of the group.", labels=SOURCE
        )
        waited = CounterMetricFamily(
            "kohort_spark_rebalance_wait_seconds",
            "Time that the query's triggers have waited for rebalances.",
            labels=SOURCE,
        )
        for query in self._states.queries():
            for report in query.sources:
                labels = (query.name, report.manifest.operator)
                owned.add_metric(labels, len(report.positions))
                epoch.add_metric(labels, report.epoch)
                if report.rebalance_wait_ms is not None:
                    waited.add_metric(labels, report.rebalance_wait_ms / 1000)
        yield from (owned, epoch, waited)


def _server(states: QueryStates, host: str, port: int) -> ThreadingHTTPServer:
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder
    except ImportError as error:
        raise MetricsError(
            'metrics need the package prometheus_client: pip install "kohort[metrics]"'
        ) from error
    registry = CollectorRegistry()
    registry.register(QueryCollector(states))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name is defined by http.server
            path = self.path.partition("?")[0]
            if path == "/metrics":
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._answer(HTTPStatus.OK, encode(registry), content_type)
            elif path == "/healthz":
                failures = states.failures()
                status = HTTPStatus.SERVICE_UNAVAILABLE if failures else HTTPStatus.OK
                self._answer(status, "\n".join([*failures, ""] if failures else ["ok\n"]).encode())
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"there are /metrics and /healthz\n")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is http.server's
            """Log nothing: a line per scrape would fill the driver's log."""

        def _answer(
            self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8"
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise MetricsError(
            f"metrics cannot be served at {host}:{port}: {error.strerror}; give another "
            "metrics_port, or 0 for one that is free"
        ) from error
    server.daemon_threads = True
    return server
