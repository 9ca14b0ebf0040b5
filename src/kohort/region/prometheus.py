"""Metrics of regions for Prometheus; needs the extra `metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol
from wsgiref.simple_server import WSGIServer

from kohort.exporting import registry_with, serve
from kohort.region.errors import RegionError
from kohort.region.machines.describing import ALL_GONE
from kohort.region.machines.state import Phase

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    from kohort.region.metrics import RegionMetrics
    from kohort.region.ui.view import View


class MetricsError(RegionError):
    """Metrics cannot be served."""


class Measured(Protocol):
    """A `RegionConsumer` or an `AsyncRegionConsumer`."""

    @property
    def region(self) -> str:
        """The region's name."""

    @property
    def operator(self) -> str:
        """The operator's name."""

    def metrics(self) -> RegionMetrics:
        """Return the current metrics."""


_MS = 0.001
# Of workers: name in Prometheus, name here, factor, help. A name that ends in `_total` is a
# counter.
_WORKER = (
    ("partitions_assigned", "nPartitionsAssigned", 1, "Partitions that the group has assigned."),
    ("consumed_topics", "nConsumedTopics", 1, "Topics of these partitions."),
    ("partition_rebalances_total", "nPartitionRebalances", 1, "Rebalances of this member."),
    ("pending_messages", "nPendingMessages", 1, "Records that wait for the function."),
    ("queue_full_pauses_total", "nQueueFullPause", 1, "Pauses because the queue was full."),
    ("operator_drain_seconds", "drainTimeMillis", _MS, "Operator's part of the last checkpoint."),
    ("operator_drain_seconds_max", "drainTimeMillisMax", _MS, "Its longest part of a checkpoint."),
    ("completed_checkpoint", "completed", 1, "The last complete checkpoint."),
    ("attempt", "attempt", 1, "The attempt: it grows with each reset."),
    ("resets_in_a_row", "resets", 1, "Resets without a complete checkpoint since."),
    ("drain_seconds_average", "averageDrainTimeMillis", _MS, "Average of the last ten drains."),
    ("reset_seconds_average", "averageResetTimeMillis", _MS, "Average of the last ten resets."),
)
_LABELS = ("region", "operator")


class WorkerCollector:
    """Collects metrics of workers for Prometheus; register it in your own registry.

    Args:
        workers: The workers of this process.
    """

    def __init__(self, *workers: Measured) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        found = [((each.region, each.operator), each.metrics()) for each in self._workers]
        for name, key, factor, text in _WORKER:
            values = [(labels, _number(metrics, key) * factor) for labels, metrics in found]
            yield _family(name, text, _LABELS, values)
        yield _phases(_LABELS, [(labels, metrics["state"]) for labels, metrics in found])


class ViewCollector:
    """Collects metrics of a region for Prometheus, from the data of its web page.

    Args:
        view: The data of the page, see `kohort.region.ui.view.Watch.view`.
    """

    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        view, region = self._view, (self._view["region"],)
        known = [(region, float(view["known"]))]
        yield _family("known", "Whether the control topic can be read.", ("region",), known)
        if not view["known"]:
            return
        for name, value, text in (
            ("completed_checkpoint", view["completed"], "The last complete checkpoint."),
            ("attempt", view["attempt"], "The attempt: it grows with each reset."),
            ("resets_in_a_row", view["resets_in_a_row"], "Resets since a checkpoint was complete."),
            ("controller_epoch", view["epoch"], "How often the region got another controller."),
            ("operators", _present(view), "Operators that are in the group, as far as known."),
            ("group_known", float(view["group_known"]), "Whether the group can be described."),
        ):
            yield _family(name, text, ("region",), [(region, value)])
        yield _phases(("region",), [(region, view["phase"])], (ALL_GONE,))
        yield from self._partitions()

    def _partitions(self) -> Iterator[Metric]:
        labels = ("region", "operator", "topic", "partition")
        owned = [(each["name"], p) for each in self._view["operators"] for p in each["partitions"]]
        owned += [("", each) for each in self._view["unowned"]]
        places = [
            ((self._view["region"], name, p["topic"], str(p["partition"])), p) for name, p in owned
        ]
        lags = [(place, p["lag"]) for place, p in places if p["lag"] is not None]
        sizes = [(place, p["state_bytes"]) for place, p in places]
        yield _family("lag_records", "Records behind the last complete checkpoint.", labels, lags)
        yield _family("state_bytes", "State in the last complete checkpoint.", labels, sizes)


def _present(view: View) -> int:
    return sum(each["condition"] != "gone" for each in view["operators"])


def _number(metrics: RegionMetrics, key: str) -> float:
    value = dict(metrics)[key]
    assert isinstance(value, int | float)
    return value


def _family(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float]]
) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(f"kohort_region_{name}", text, labels=labels)
    for place, value in values:
        family.add_metric(place, value)
    return family


def _phases(
    labels: tuple[str, ...],
    found: Iterable[tuple[tuple[str, ...], str]],
    more: tuple[str, ...] = (),
) -> Metric:
    names = (*(each.name for each in Phase), *more)
    values = [((*place, name), float(name == phase)) for place, phase in found for name in names]
    return _family("phase", "1 for the phase that the region is in.", (*labels, "phase"), values)


def serve_metrics(*workers: Measured, port: int, host: str = "127.0.0.1") -> WSGIServer:
    """Serve the metrics of workers over HTTP, from a background thread.

    Args:
        workers: Workers of this process.
        port: Port to listen on; 0: a free port.
        host: Address to listen on; there is neither encryption nor authentication.

    Returns:
        The server: `server_port` is its port, `shutdown` and `server_close` stop it.

    Raises:
        MetricsError: prometheus_client is not installed, or the port is taken.
    """
    return serve(registry_of(WorkerCollector(*workers)), host, port, MetricsError)


def registry_of(collector: WorkerCollector | ViewCollector) -> CollectorRegistry:
    """Return a registry with one collector.

    Raises:
        MetricsError: prometheus_client is not installed.
    """
    return registry_with(collector, MetricsError)
