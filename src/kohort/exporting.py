"""Metrics for Prometheus over HTTP; needs the extra `metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIServer

from kohort.errors import KohortError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector


def registry_with(collector: Collector, error: type[KohortError]) -> CollectorRegistry:
    """Return a registry with one collector.

    Args:
        collector: The collector.
        error: Type of the error if prometheus_client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as missing:
        raise error(
            'metrics need the package prometheus_client: pip install "kohort[metrics]"'
        ) from missing
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def serve(
    registry: CollectorRegistry, host: str, port: int, error: type[KohortError]
) -> WSGIServer:
    """Serve a registry from a separate thread.

    Args:
        registry: The registry.
        host: Address to listen on.
        port: Port to listen on, 0 for any free port.
        error: Type of the error if the port is taken.
    """
    from prometheus_client import start_http_server

    try:
        return start_http_server(port, addr=host, registry=registry)[0]
    except OSError as taken:
        raise error(f"metrics cannot be served at {host}:{port}: {taken.strerror}") from taken
