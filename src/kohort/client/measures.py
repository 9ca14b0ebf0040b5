"""The metrics of a client outside its group, by the names of Kafka's Java client.

As in Kafka, averages, maxima and rates cover at most the last minute, and are NaN or 0 without
data; totals cover the client's lifetime. Times are milliseconds of the loop's clock.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from kohort.client.consumer.partitions import PartitionState
    from kohort.client.producer.batch import Batch
    from kohort.wire.messages.fetch import FetchResponse
    from kohort.wire.messages.produce import ProduceRequest, ProduceResponse

FETCHES = "consumer-fetch-manager-metrics"
CONSUMER = "consumer-metrics"
PRODUCER = "producer-metrics"
ADMIN = "admin-client-metrics"

Metrics = dict[str, dict[str, float]]
"""Values by group and metric name, as returned by `Consumer.metrics`, for example."""


# Kafka's metrics.sample.window.ms and metrics.num.samples.
_WINDOW_MS = 30_000.0
_WINDOWS = 2

_SECOND_MS = 1_000.0


class _Window(Struct):
    start: float
    count: int = 0
    total: float = 0.0
    maximum: float = -math.inf


def precise_ms() -> float:
    """Return the time of the running loop in milliseconds."""
    return asyncio.get_running_loop().time() * 1000


class Sensor:
    """Counts values and keeps recent ones; times are milliseconds of one clock."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._windows: deque[_Window] = deque()

    def record(self, value: float, now: float) -> None:
        """Record a value."""
        self.count += 1
        self.total += value
        windows = self._recent(now)
        if not windows or now - windows[-1].start >= _WINDOW_MS:
            windows.append(_Window(now))
        window = windows[-1]
        window.count += 1
        window.total += value
        window.maximum = max(window.maximum, value)

    def average(self, now: float) -> float:
        """Return the average of recent values, NaN when there are none."""
        windows = self._recent(now)
        count = sum(window.count for window in windows)
        return sum(window.total for window in windows) / count if count else math.nan

    def maximum(self, now: float) -> float:
        """Return the highest recent value, NaN when there is none."""
        return float(max((window.maximum for window in self._recent(now)), default=math.nan))

    def rate(self, now: float, unit_ms: float = _SECOND_MS) -> float:
        """Return the recent number of values per unit of time."""
        windows = self._recent(now)
        return self._per(sum(window.count for window in windows), unit_ms, now)

    def sum_rate(self, now: float) -> float:
        """Return the sum of recent values, per second."""
        windows = self._recent(now)
        return self._per(sum(window.total for window in windows), _SECOND_MS, now)

    def _per(self, amount: float, unit_ms: float, now: float) -> float:
        if not self._windows:
            return 0.0
        elapsed = now - self._windows[0].start
        if elapsed < _WINDOW_MS:
            # Kafka counts a window that has just begun as a full one; otherwise the very first
            # value would give a rate of thousands.
            elapsed += _WINDOW_MS
        return amount * unit_ms / elapsed

    def _recent(self, now: float) -> deque[_Window]:
        while self._windows and now - self._windows[0].start >= _WINDOW_MS * _WINDOWS:
            self._windows.popleft()
        return self._windows


class Traffic:
    """The connections of one client, and their traffic.

    Requests that open a connection (versions, authentication) are not counted.
    """

    def __init__(self) -> None:
        self.received = 0
        self._opened, self._closed = Sensor(), Sensor()
        self._requests, self._answers, self._incoming = Sensor(), Sensor(), Sensor()
        self._outgoing = 0
        self._noted = 0

    def opened(self, now: float) -> None:
        """Note a new connection."""
        self._opened.record(1, now)

    def closed(self, now: float) -> None:
        """Note that a connection has ended."""
        self._closed.record(1, now)

    def sent(self, size: int, now: float) -> None:
        """Note the size of one write, which may contain several requests."""
        self._outgoing += size
        self._requests.record(size, now)

    def answered(self, now: float) -> None:
        """Note an answer, and the growth of `received`."""
        self._answers.record(1, now)
        self._incoming.record(self.received - self._noted, now)
        self._noted = self.received

    def values(self, now: float) -> dict[str, float]:
        """Return all metrics by Kafka's names; one write counts as one request."""
        return {
            "connection-count": float(self._opened.count - self._closed.count),
            "connection-creation-total": float(self._opened.count),
            "connection-creation-rate": self._opened.rate(now),
            "connection-close-total": float(self._closed.count),
            "connection-close-rate": self._closed.rate(now),
            "request-total": float(self._requests.count),
            "request-rate": self._requests.rate(now),
            "request-size-avg": self._requests.average(now),
            "request-size-max": self._requests.maximum(now),
            "response-total": float(self._answers.count),
            "response-rate": self._answers.rate(now),
            "outgoing-byte-total": float(self._outgoing),
            "outgoing-byte-rate": self._requests.sum_rate(now),
            "incoming-byte-total": float(self.received),
            "incoming-byte-rate": self._incoming.sum_rate(now),
        }


class FetchMeasures:
    """The fetches of a consumer, and the records it returns.

    Args:
        handed_out: Returns the number of records returned so far.
    """

    def __init__(self, handed_out: Callable[[], int]) -> None:
        self._handed_out = handed_out
        self._latency, self._size, self._throttle = Sensor(), Sensor(), Sensor()
        self._records, self._lag = Sensor(), Sensor()

    def answered(self, answer: FetchResponse, latency_ms: float, now: float) -> None:
        """Note the answer to a fetch."""
        parts = (part for topic in answer.responses for part in topic.partitions)
        self._latency.record(latency_ms, now)
        self._size.record(sum(len(part.records or b"") for part in parts), now)
        self._throttle.record(answer.throttle_time_ms, now)
        self._note_records(now)

    def found(self, state: PartitionState, now: float) -> None:
        """Note the end offset of a fetched partition."""
        lag = lag_of(state)
        if lag is not None:
            self._lag.record(lag, now)

    def _note_records(self, now: float) -> None:
        handed_out = self._handed_out()
        if handed_out > self._records.total:
            self._records.record(handed_out - self._records.total, now)

    def values(self, states: Iterable[PartitionState], now: float) -> dict[str, float]:
        """Return all metrics by Kafka's names; a partition's lag is `TOPIC-NUMBER.records-lag`."""
        self._note_records(now)
        found = {
            "fetch-latency-avg": self._latency.average(now),
            "fetch-latency-max": self._latency.maximum(now),
            "fetch-rate": self._latency.rate(now),
            "fetch-total": float(self._latency.count),
            "fetch-size-avg": self._size.average(now),
            "fetch-size-max": self._size.maximum(now),
            "fetch-throttle-time-avg": self._throttle.average(now),
            "fetch-throttle-time-max": self._throttle.maximum(now),
            "records-consumed-rate": self._records.sum_rate(now),
            "records-consumed-total": float(self._records.total),
        }
        lags = {state.partition: lag_of(state) for state in states}
        known = {each: float(lag) for each, lag in lags.items() if lag is not None}
        recent = [] if math.isnan(self._lag.maximum(now)) else [self._lag.maximum(now)]
        found["records-lag-max"] = max([*known.values(), *recent], default=math.nan)
        for partition, lag in known.items():
            found[f"{partition.topic}-{partition.partition}.records-lag"] = lag
        return found


class ProduceMeasures:
    """The requests and records that a producer sends."""

    def __init__(self) -> None:
        self._records, self._errors, self._retries = Sensor(), Sensor(), Sensor()
        self._waited, self._batch = Sensor(), Sensor()
        self._latency, self._throttle, self._in_request = Sensor(), Sensor(), Sensor()

    def taken(self, batch: Batch, now: float) -> None:
        """Note a batch that is about to be sent, for the first time or again."""
        if batch.attempts == 1:
            self._waited.record(now - batch.created, now)
            self._records.record(batch.builder.count, now)
        else:
            self._retries.record(batch.builder.count, now)

    def failed(self, batch: Batch, now: float) -> None:
        """Note a batch that was given up."""
        self._errors.record(batch.builder.count, now)

    def sent(self, request: ProduceRequest, batches: Iterable[Batch], now: float) -> None:
        """Note a request and its batches."""
        for topic in request.topic_data:
            for part in topic.partition_data:
                self._batch.record(len(part.records or b""), now)
        self._in_request.record(sum(each.builder.count for each in batches), now)

    def answered(self, answer: ProduceResponse, latency_ms: float, now: float) -> None:
        """Note the answer to a request."""
        self._latency.record(latency_ms, now)
        self._throttle.record(answer.throttle_time_ms, now)

    def values(self, now: float) -> dict[str, float]:
        """Return all metrics by Kafka's names."""
        found: dict[str, float] = {}
        for name, counted in (
            ("record-send", self._records),
            ("record-error", self._errors),
            ("record-retry", self._retries),
        ):
            found[f"{name}-total"] = float(counted.total)
            found[f"{name}-rate"] = counted.sum_rate(now)
        for name, sensor in (
            ("batch-size", self._batch),
            ("record-queue-time", self._waited),
            ("request-latency", self._latency),
            ("produce-throttle-time", self._throttle),
        ):
            found[f"{name}-avg"] = sensor.average(now)
            found[f"{name}-max"] = sensor.maximum(now)
        found["records-per-request-avg"] = self._in_request.average(now)
        return found


def lag_of(state: PartitionState) -> int | None:
    """Return how far a position is behind the end offset; None while one is not known."""
    if state.position is None or state.end is None:
        return None
    return max(0, state.end - state.position)
