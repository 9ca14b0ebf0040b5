"""The work of an operator that is a Spark query: one batch at a time, offered and handed over.

It takes the commands of `kohort.region.work`, and answers with the same reports. The records of a
batch count as delivered once the sink has handed it over: until then checkpoints and leaving
partitions wait. A reset does not wait; the open batch is then void.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kohort.region.machines.records import OperatorId, RegionPartition
from kohort.region.work import Command, Cut, Discard, Load, Report, Stop, Work
from kohort.spark.checkpoint.manifest import Manifest, Range
from kohort.spark.region.ipc import Channel, HandOver
from kohort.spark.source.group_offsets import Topic
from kohort.spark.source.limits import FairLimit
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.region.sinks.sink import CutWriter, SharedSink, TaskFile


class SparkWork:
    """Positions, states and files of one operator; may be called from any thread.

    Args:
        region: Name of the region.
        operator: The operator's name and incarnation.
        sink: The sink to which the query's tasks write.
        report: Called with the result of each command.
        channel: Receives the results of the query's sink.
        keeps_state: Whether the sink needs the states of partitions.
    """

    def __init__(
        self,
        region: str,
        operator: OperatorId,
        sink: SharedSink,
        report: Callable[[Report], None],
        channel: Channel,
        *,
        keeps_state: bool,
    ) -> None:
        self._region = region
        self._operator = operator
        self._channel = channel
        self._keeps_state = keeps_state
        self._lock = threading.RLock()
        self._work = Work(report, lambda attempt: _Files(sink, operator, attempt))
        self._limit = FairLimit()
        self._batches = 0
        self._open: Manifest | None = None
        # The partitions that the open batch reads.
        self._reads: dict[TopicPartition, RegionPartition] = {}
        self._held: deque[Stop | Cut] = deque()
        # The offsets that Spark was told count as delivered; a reset does not revert them.
        self._handed: dict[RegionPartition, int] = {}

    # ------------------------------------------------------------------------------- the operator

    def obey(self, command: Command) -> None:
        """Carry out a command, now or once the open batch is handed over."""
        with self._lock:
            match command:
                case Load():
                    self._work.obey(command)
                case Discard():
                    self._withdraw()
                    self._held.clear()
                    self._work.obey(command)
                case Stop() | Cut():
                    self._held.append(command)
                    self._go_on()

    def _go_on(self) -> None:
        while self._held and not self._must_wait(self._held[0]):
            self._work.obey(self._held.popleft())

    def _must_wait(self, command: Stop | Cut) -> bool:
        if self._open is None:
            return False
        return isinstance(command, Cut) or not command.partitions.isdisjoint(self._reads.values())

    def _withdraw(self) -> None:
        if self._open is not None:
            self._channel.withdraw(self._open)
        self._open, self._reads = None, {}

    def void(self) -> None:
        """Make the open batch void: Spark is stopping, or has ended."""
        with self._lock:
            self._withdraw()
            self._go_on()

    # ---------------------------------------------------------------------------------- the query

    @property
    def open(self) -> Manifest | None:
        """The batch that is offered but not handed over yet."""
        with self._lock:
            return self._open

    def positions(self) -> dict[RegionPartition, int]:
        """Return the partitions being read, with the offset of each one's next record."""
        with self._lock:
            return self._work.positions()

    def handed_over(self) -> dict[RegionPartition, int]:
        """Return the offsets up to which batches were handed over, for all partitions ever read.

        A reset discards work that is in no checkpoint, and partitions may leave: neither changes
        the result, so that stopping can check whether a checkpoint contains everything that Spark
        has finished.
        """
        with self._lock:
            return dict(self._handed)

    def offer(
        self, ends: Mapping[RegionPartition, int], limit: int | None, attempt: int
    ) -> Manifest | None:
        """Open the next batch; return None if there is nothing to read, or other work comes first.

        Args:
            ends: The current partitions, and the offset at which to stop reading each.
            limit: Maximum number of records to read; None: unlimited.
            attempt: The region's attempt, for messages.
        """
        with self._lock:
            if self._open is not None or self._held:
                return self._open
            places = {TopicPartition(each.topic, each.partition): each for each in ends}
            positions = self._work.positions()
            starts = {tp: positions[each] for tp, each in places.items() if each in positions}
            sizes = {tp: max(ends[places[tp]] - start, 0) for tp, start in starts.items()}
            if not sum(sizes.values()):
                return None
            if limit is not None:
                sizes = self._limit.share(sizes, limit)
            ranges = {tp: (start, start + sizes[tp]) for tp, start in starts.items()}
            self._reads = {tp: places[tp] for tp in ranges if sizes[tp]}
            self._open = self._manifest(ranges, places, attempt)
            self._channel.offer(self._open, self._states())
            return self._open

    def _manifest(
        self,
        ranges: Mapping[TopicPartition, Range],
        places: Mapping[TopicPartition, RegionPartition],
        attempt: int,
    ) -> Manifest:
        self._batches += 1
        return Manifest(
            epoch=attempt,
            operator=self._operator.name,
            ranges=ranges,
            batch=self._batches,
            nonce=self._operator.incarnation,
            topics={tp.topic: Topic(places[tp].topic_id, 0) for tp in ranges},
            region=self._region,
        )

    def _states(self) -> dict[TopicPartition, bytes]:
        if not self._keeps_state:
            return {}
        states = {tp: self._work.state_of(each) for tp, each in self._reads.items()}
        return {tp: state for tp, state in states.items() if state}

    def take_over(self, key: str, made: HandOver) -> bool:
        """Take over the sink's results for a batch; return whether they count.

        Args:
            key: The key of the batch.
            made: The results.
        """
        with self._lock:
            if self._open is None or not Channel.is_of(key, self._open):
                return False
            ranges = self._open.ranges
            for tp, partition in self._reads.items():
                end = ranges[tp][1]
                self._work.advance(partition, end, made.states.get(tp))
                self._handed[partition] = max(end, self._handed.get(partition, 0))
            if made.files:
                self._work.write(min(self._reads.values()), made.files)
            self._withdraw()
            self._go_on()
            return True


class _Files:
    """The files of an operator in one attempt, between two checkpoints."""

    def __init__(self, sink: SharedSink, operator: OperatorId, attempt: int) -> None:
        self._sink = sink
        self._operator = operator
        self._attempt = attempt
        self._files: list[TaskFile] = []

    def write(self, _partition: RegionPartition, files: Any) -> None:  # noqa: ANN401  # a CutWriter's
        self._files += files

    def prepare(self, checkpoint: int, attempt: int) -> str:
        files, self._files = self._files, []
        return self._sink.hand_over(self._operator, checkpoint, attempt, files)

    def abort(self) -> None:
        files, self._files = self._files, []
        self._sink.remove(files)


if TYPE_CHECKING:
    _: type[CutWriter] = _Files
