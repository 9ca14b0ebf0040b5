"""The metrics of a consumer's group, by Kafka's names (KIP-429 and before).

Computed from requests to the group's coordinator and their answers, from calls into the
application, and, without JoinGroup (KIP-848), from reports of the member. As in Kafka, averages and
maxima cover at most the last minute, and are NaN without data; totals cover the consumer's
lifetime.
"""

from __future__ import annotations

from kohort.client.measures import Sensor
from kohort.errors import ErrorCode
from kohort.group.events import GroupEvent, MemberStateChanged, Ownership
from kohort.wire.codec.schema import Message
from kohort.wire.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kohort.wire.messages.offsets import OffsetCommitResponse

GROUP = "consumer-coordinator-metrics"

_HOUR_MS = 3_600_000.0


class GroupMetrics:
    """The group metrics of one consumer. Times are milliseconds of the shell's clock."""

    def __init__(self) -> None:
        self._join = Sensor()
        self._sync = Sensor()
        self._rebalance = Sensor()
        self._failed_rebalance = Sensor()
        self._heartbeat = Sensor()
        self._commit = Sensor()
        self._calls = {change: Sensor() for change in Ownership}
        self._rebalance_start: float | None = None
        self._is_reconciling = False
        self._last_rebalance: float | None = None
        self._last_heartbeat: float | None = None

    def sent(self, request: Message, now: float) -> None:
        """Note a request to the coordinator."""
        if isinstance(request, JoinGroupRequest) and self._rebalance_start is None:
            self._rebalance_start = now
        elif isinstance(request, (HeartbeatRequest, ConsumerGroupHeartbeatRequest)):
            self._last_heartbeat = now

    def answered(self, response: Message, latency_ms: float, now: float) -> None:
        """Note an answer of the coordinator."""
        match response:
            case JoinGroupResponse(error_code=ErrorCode.NONE):
                self._join.record(latency_ms, now)
            case JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                pass  # KIP-394: the first half of a join
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                self._sync.record(latency_ms, now)
                self._rebalanced(now)
            case JoinGroupResponse() | SyncGroupResponse():
                self._failed_rebalance.record(1, now)
            case HeartbeatResponse() | ConsumerGroupHeartbeatResponse():
                self._heartbeat.record(latency_ms, now)
            case OffsetCommitResponse():
                self._commit.record(latency_ms, now)

    def unanswered(self, request: Message, now: float) -> None:
        """Note a request that gets no answer."""
        if isinstance(request, (JoinGroupRequest, SyncGroupRequest)):
            self._failed_rebalance.record(1, now)

    def observed(self, fact: GroupEvent, now: float) -> None:
        """Note a report of the member: in KIP-848 a reconciliation counts as a rebalance."""
        if not isinstance(fact, MemberStateChanged):
            return
        if fact.after == "RECONCILING" and not self._is_reconciling:
            self._is_reconciling = True
            self._rebalance_start = now
        elif self._is_reconciling and fact.after in ("STABLE", "FENCED", "FATAL", "STALE"):
            self._is_reconciling = False
            if fact.after == "STABLE":
                self._rebalanced(now)
            else:
                self._rebalance_start = None
                self._failed_rebalance.record(1, now)

    def _rebalanced(self, now: float) -> None:
        """L14: a rebalance counts as done before the listener is called."""
        if self._rebalance_start is not None:
            self._rebalance.record(now - self._rebalance_start, now)
        self._rebalance_start = None
        self._last_rebalance = now

    def called(self, change: Ownership, latency_ms: float, now: float) -> None:
        """Note a call into the application that has returned."""
        self._calls[change].record(latency_ms, now)

    def values(self, assigned: int, now: float, *, joins: bool = True) -> dict[str, float]:
        """Return all metrics by Kafka's names.

        Args:
            assigned: The number of partitions of the consumer.
            now: The current time.
            joins: Whether its protocol has joins and syncs; KIP-848 has none.
        """
        found: dict[str, float] = {"assigned-partitions": float(assigned)}
        for name, sensor in (("join", self._join), ("sync", self._sync)) if joins else ():
            found |= _latency(f"{name}-time", sensor, now) | _rate(name, sensor, now)
        found |= _latency("commit-latency", self._commit, now)
        found |= _rate("commit", self._commit, now) | _rate("heartbeat", self._heartbeat, now)
        found["heartbeat-response-time-max"] = self._heartbeat.maximum(now)
        found["last-heartbeat-seconds-ago"] = _seconds_since(self._last_heartbeat, now)
        found |= _latency("rebalance-latency", self._rebalance, now)
        found["rebalance-latency-total"] = self._rebalance.total
        found |= _rate_per_hour("rebalance", self._rebalance, now)
        found |= _rate_per_hour("failed-rebalance", self._failed_rebalance, now)
        found["last-rebalance-seconds-ago"] = _seconds_since(self._last_rebalance, now)
        for change, sensor in self._calls.items():
            # L13: in the singular, as in Kafka's code and not its documentation
            found |= _latency(f"partition-{change.value}-latency", sensor, now)
        return found


def _latency(name: str, sensor: Sensor, now: float) -> dict[str, float]:
    return {f"{name}-avg": sensor.average(now), f"{name}-max": sensor.maximum(now)}


def _rate(name: str, sensor: Sensor, now: float) -> dict[str, float]:
    return {f"{name}-rate": sensor.rate(now), f"{name}-total": float(sensor.count)}


def _rate_per_hour(name: str, sensor: Sensor, now: float) -> dict[str, float]:
    return {
        f"{name}-rate-per-hour": sensor.rate(now, _HOUR_MS),
        f"{name}-total": float(sensor.count),
    }


def _seconds_since(when: float | None, now: float) -> float:
    """Return the whole seconds since `when`, -1 for None."""
    return -1.0 if when is None else float(int((now - when) // 1_000))
