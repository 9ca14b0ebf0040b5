"""Metrics of clients for Prometheus; needs the extra `metrics`.

The names are those of Micrometer for the metrics of Kafka's Java clients, so existing dashboards
work: `kafka_consumer_fetch_manager_records_lag_max{client_id="..."}`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from wsgiref.simple_server import WSGIServer

from kohort.client.measures import Metrics
from kohort.errors import KohortError, LocalProtocolError
from kohort.exporting import registry_with, serve

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

log = logging.getLogger("kohort.client")

_LAG = ".records-lag"
# How long a scrape waits for a busy loop, in seconds.
_PATIENCE_S = 5.0


class MetricsError(KohortError):
    """Metrics cannot be served."""


class Measured(Protocol):
    """A client: `Consumer`, `Producer`, `AdminClient` and their asyncio facades."""

    @property
    def client_id(self) -> str:
        """The client's name."""

    def metrics(self) -> Metrics:
        """Return the client's metrics."""


class ClientCollector:
    """Exports metrics of clients to Prometheus; register it in a registry of your own.

    For async clients, create it in a task that uses them: their loop is asked for the values.
    Closed clients are left out.

    Args:
        clients: The clients of this process.

    Raises:
        MetricsError: Two clients of a kind have the same `client_id`, which must distinguish them.
    """

    def __init__(self, *clients: Measured) -> None:
        _check_names(clients)
        self._clients = clients
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # there is no loop, and blocking clients need none
            self._loop = asyncio.get_running_loop()

    def describe(self) -> list[Metric]:
        """Return nothing: the metrics are known only once the clients are used."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for client in self._clients:
            for group, values in self._values_of(client).items():
                for name, value in values.items():
                    if math.isnan(value):
                        continue
                    metric, place = _metric(group, name)
                    kind = CounterMetricFamily if metric.endswith("_total") else GaugeMetricFamily
                    labels = ("client_id", *place)
                    text = f"{name.rpartition('.')[2]} of Kafka's {group}."
                    family = families.setdefault(metric, kind(metric, text, labels=labels))
                    family.add_metric((client.client_id, *place.values()), value)
        yield from families.values()

    def _values_of(self, client: Measured) -> Metrics:
        try:
            if not isinstance(client, _async_faces()):
                return client.metrics()
            if self._loop is None:
                raise MetricsError(
                    "an async client is measured on its loop: call serve_metrics in a task on it"
                )
            return asyncio.run_coroutine_threadsafe(_asked(client), self._loop).result(_PATIENCE_S)
        except LocalProtocolError:
            return {}  # the client is closed, or was not used yet
        except (LateError, RuntimeError) as error:
            log.warning("client %s is not measured: its loop %s", client.client_id, _why(error))
            return {}


def _check_names(clients: tuple[Measured, ...]) -> None:
    seen = Counter((_kind(each), each.client_id) for each in clients)
    for (kind, name), count in seen.items():
        if count > 1:
            raise MetricsError(
                f"{count} {kind}s are named {name!r}, and their metrics cannot be told apart: give"
                " each a client_id of its own"
            )


def _kind(client: Measured) -> str:
    name = type(client).__name__
    return next((kind for kind in ("producer", "admin") if kind.title() in name), "consumer")


async def _asked(client: Measured) -> Metrics:
    return client.metrics()


def _why(error: Exception) -> str:
    return f"did not answer within {_PATIENCE_S:.0f} s" if isinstance(error, LateError) else "ended"


def _async_faces() -> tuple[type, ...]:
    from kohort.client.admin.aio import AsyncAdminClient
    from kohort.client.consumer.aio import AsyncConsumer
    from kohort.client.producer.aio import AsyncProducer

    return AsyncConsumer, AsyncProducer, AsyncAdminClient


def _metric(group: str, name: str) -> tuple[str, dict[str, str]]:
    """Return the Prometheus name of a metric, and its labels for topic and partition."""
    place: dict[str, str] = {}
    if name.endswith(_LAG):
        topic, _, number = name.removesuffix(_LAG).rpartition("-")
        name, place = _LAG[1:], {"topic": topic, "partition": number}
    prefix = group.removesuffix("-metrics")
    return f"kafka_{prefix}_{name}".replace("-", "_"), place


def serve_metrics(*clients: Measured, port: int, host: str = "127.0.0.1") -> WSGIServer:
    """Serve the metrics of clients over HTTP, from a separate thread.

    Args:
        clients: Clients of this process; async ones from a task of their loop.
        port: Port to listen on, 0 for any free port.
        host: Address to listen on; there is no access control.

    Returns:
        The server: `server_port` is its port, `shutdown` and `server_close` end it.

    Raises:
        MetricsError: prometheus_client is not installed, the port is taken, or two clients of a
            kind have the same `client_id`.
    """
    return serve(registry_of(*clients), host, port, MetricsError)


def registry_of(*clients: Measured) -> CollectorRegistry:
    """Return a registry with the metrics of clients.

    Raises:
        MetricsError: prometheus_client is not installed.
    """
    return registry_with(ClientCollector(*clients), MetricsError)
