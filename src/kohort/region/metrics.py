"""The metrics of a region's process: as an operator, and as a controller candidate."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from kohort.region.machines.records import RegionPartition
    from kohort.region.machines.state import RegionState

# Averages cover this many drains or resets, as in IBM Streams.
AVERAGED = 10

RegionMetrics = TypedDict(  # noqa: UP013  # the names of IBM Streams are not Python names
    "RegionMetrics",
    {
        "nPartitionsAssigned": int,
        "nConsumedTopics": int,
        "nPartitionRebalances": int,
        "nPendingMessages": int,
        "nQueueFullPause": int,
        "drainTimeMillis": int,
        "drainTimeMillisMax": int,
        "state": str,
        "completed": int,
        "attempt": int,
        "resets": int,
        "averageDrainTimeMillis": float,
        "averageResetTimeMillis": float,
    },
)
RegionMetrics.__doc__ = """Metrics of a worker, under the names that IBM Streams gave them.

Of the operator: its assigned partitions and their topics, rebalances, records that wait for the
function, how often reading paused because the queue was full, and how long its part of the last
and of the slowest checkpoint took, in milliseconds.

Of the region, as this process sees it: the phase, the last complete checkpoint, the attempt, resets
in a row without a complete checkpoint, and averages over the last ten drains and resets.
"""


class OperatorMetrics:
    """The metrics of an operator."""

    def __init__(self) -> None:
        self.assigned = 0
        self.topics = 0
        self.rebalances = 0
        self.queue_full_pauses = 0
        self.drain_ms = 0
        self.drain_max_ms = 0
        self._drain_began: float | None = None

    def own(self, partitions: Iterable[RegionPartition]) -> None:
        """Record the partitions assigned by the group."""
        topics = [each.topic for each in partitions]
        self.assigned, self.topics = len(topics), len(set(topics))

    def begin_drain(self, now: float) -> None:
        """Record that a checkpoint asks for this operator's part."""
        self._drain_began = now

    def end_drain(self, now: float) -> None:
        """Record that this part is in the log."""
        if self._drain_began is not None:
            self.drain_ms = int(now - self._drain_began)
            self.drain_max_ms = max(self.drain_max_ms, self.drain_ms)
            self._drain_began = None


class ControllerMetrics:
    """The metrics of the region as seen by a candidate, controller or not.

    Times are measured between two reads of the log, by this process's clock.
    """

    def __init__(self) -> None:
        self.state = "STARTED"
        self.completed = 0
        self.attempt = 0
        self.resets = 0
        self._drains: deque[float] = deque(maxlen=AVERAGED)
        self._resets: deque[float] = deque(maxlen=AVERAGED)
        self._drain_began: tuple[int, float] | None = None
        self._reset_began: float | None = None

    def folded(self, state: RegionState, now: float) -> None:
        """Record the region's state."""
        self._time_drain(state, now)
        self._time_reset(state, now)
        self.state = state.phase.name
        self.completed, self.attempt, self.resets = state.completed, state.attempt, state.resets

    def _time_drain(self, state: RegionState, now: float) -> None:
        if self._drain_began is not None and state.completed >= self._drain_began[0]:
            self._drains.append(now - self._drain_began[1])
            self._drain_began = None
        if state.drain is None:
            self._drain_began = None  # a reset ended it
        elif self._drain_began is None or self._drain_began[0] != state.drain.checkpoint:
            self._drain_began = (state.drain.checkpoint, now)

    def _time_reset(self, state: RegionState, now: float) -> None:
        is_known = self.attempt > 0
        if is_known and state.attempt > self.attempt:
            self._reset_began = now
        if self._reset_began is not None and next(state.awaited(), None) is None:
            self._resets.append(now - self._reset_began)
            self._reset_began = None

    @property
    def average_drain_ms(self) -> float:
        """Average milliseconds from the start of a drain to its completion; 0: there was none."""
        return _average(self._drains)

    @property
    def average_reset_ms(self) -> float:
        """Average milliseconds of a reset until every operator has finished; 0: there was none."""
        return _average(self._resets)


def _average(times: deque[float]) -> float:
    return sum(times) / len(times) if times else 0.0


def measured(
    operator: OperatorMetrics, controller: ControllerMetrics, pending: int
) -> RegionMetrics:
    """Return both sets of metrics under their names in IBM Streams.

    Args:
        operator: The operator's metrics.
        controller: The candidate's metrics.
        pending: Number of records waiting for the function.
    """
    return {
        "nPartitionsAssigned": operator.assigned,
        "nConsumedTopics": operator.topics,
        "nPartitionRebalances": operator.rebalances,
        "nPendingMessages": pending,
        "nQueueFullPause": operator.queue_full_pauses,
        "drainTimeMillis": operator.drain_ms,
        "drainTimeMillisMax": operator.drain_max_ms,
        "state": controller.state,
        "completed": controller.completed,
        "attempt": controller.attempt,
        "resets": controller.resets,
        "averageDrainTimeMillis": controller.average_drain_ms,
        "averageResetTimeMillis": controller.average_reset_ms,
    }
