"""Logs of the simulated brokers, beside those of the group: changelogs, outputs, the control topic.

Records of a producer arrive in order in each partition, some time later; they may arrive when the
sender is dead already, or never. No batch is stored twice: the producer is idempotent.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from kohort.client.producer.arrow.delivery import ArrowDelivery, PartitionRows
from kohort.client.producer.delivery import RecordMetadata
from kohort.simulation.chance import Stream
from kohort.streams.runtime.interface import Pair
from kohort.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.simulation.streams.process import StreamsProcess
    from kohort.simulation.streams.world import StreamsWorld

# Share of the records in flight that are lost with their sender.
_LOST = 0.5


class Log(Struct):
    """One partition.

    Attributes:
        pairs: Keys and values, by offset.
        times: When each of them arrived.
        state: The last value of each key.
        shown: The end that a new leader reports at first.
        shown_until: Until when.
    """

    pairs: list[Pair] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    state: dict[bytes, bytes] = field(default_factory=dict)
    shown: int = 0
    shown_until: int = 0

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return len(self.pairs)

    def end_at(self, now: int) -> int:
        """Return the end that a reader gets at a time."""
        return min(self.shown, self.end) if now < self.shown_until else self.end

    def since(self, time: int) -> int:
        """Return how many records came after a time."""
        return self.end - bisect_right(self.times, time)

    def state_at(self, end: int) -> dict[bytes, bytes]:
        """Return the last value of each key before an offset."""
        found: dict[bytes, bytes] = {}
        for key, value in self.pairs[:end]:
            found[key] = value or b""
        return found


class Brokers:
    """All logs.

    Attributes:
        down_until: Until when no record arrives, because leaders change.
    """

    def __init__(self, world: StreamsWorld) -> None:
        self.world = world
        self.logs: dict[TopicPartition, Log] = {}
        self.down_until = 0

    def log(self, place: TopicPartition) -> Log:
        """Return the log of a partition."""
        found = self.logs.get(place)
        if found is None:
            found = self.logs[place] = Log()
        return found

    def append(self, process: StreamsProcess, place: TopicPartition, pairs: list[Pair]) -> int:
        """Append records that arrive; return the offset of the first one."""
        world, log = self.world, self.log(place)
        first = log.end
        log.pairs += pairs
        log.times += [world.engine.now] * len(pairs)
        log.state.update((key, value or b"") for key, value in pairs)
        world.arrived(process, place, pairs)
        for each in world.processes():
            each.streams.grown(place)
        return first

    def change_leaders(self, lasts_ms: int, hidden: int) -> None:
        """Let other brokers lead the partitions; no record arrives meanwhile.

        Args:
            lasts_ms: How long that takes.
            hidden: How many of the last records the new leaders do not know to be stored at first.
        """
        now = self.world.engine.now
        self.down_until = max(self.down_until, now + lasts_ms)
        for log in self.logs.values():
            log.shown, log.shown_until = max(log.end_at(now) - hidden, 0), now + lasts_ms


class _Sent(NamedTuple):
    """Records in flight.

    Attributes:
        pairs: The records.
        told: Makes the sender's result from the first offset.
        future: Gets the result.
        is_lost: Whether it is lost if its sender dies meanwhile.
    """

    pairs: list[Pair]
    told: Callable[[int], object]
    future: asyncio.Future[object]
    is_lost: bool


class LogProducer:
    """The producer of a process: the part that the runtime of streams uses.

    Args:
        process: Its process.
    """

    def __init__(self, process: StreamsProcess) -> None:
        self._process = process
        self._world = process.streams_world
        name = f"{process.name}#{process.life}"
        self._chance = Stream(process.world.scenario.seed, "producer", name)
        self._queues: dict[TopicPartition, deque[_Sent]] = {}
        self._waiting: dict[asyncio.Future[object], None] = {}

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int = 0,
        **_more: object,
    ) -> asyncio.Future[object]:
        """Send a record."""
        place = TopicPartition(topic, partition)
        pairs = [(key or b"", value)]
        return self._post(place, pairs, lambda first: RecordMetadata(*place, first, -1))

    async def send_arrow(self, topic: str, table: pa.RecordBatch) -> asyncio.Future[object]:
        """Send rows of one partition."""
        place = TopicPartition(topic, table.column("partition")[0].as_py())
        keys, values = table.column("key").to_pylist(), table.column("value").to_pylist()
        pairs = list(zip(keys, values, strict=True))
        self._process.step("send changes")
        self._world.sends(self._process, place)

        def delivered(first: int) -> ArrowDelivery:
            last = first + len(pairs) - 1
            return ArrowDelivery(
                topic, len(pairs), {place.partition: PartitionRows(len(pairs), first, last)}
            )

        return self._post(place, pairs, delivered)

    def _post(
        self, place: TopicPartition, pairs: list[Pair], told: Callable[[int], object]
    ) -> asyncio.Future[object]:
        process, engine = self._process, self._world.engine
        future = process.streams.loop.create_future()
        if not process.alive:
            return future
        self._waiting[future] = None
        future.add_done_callback(self._forget)
        sent = _Sent(pairs, told, future, self._chance.happens(_LOST))
        self._queues.setdefault(place, deque()).append(sent)
        engine.after(1 + int(self._chance.exponential(3)), None, self._arrive, place)
        return future

    def _forget(self, future: asyncio.Future[object]) -> None:
        self._waiting.pop(future, None)

    def _arrive(self, place: TopicPartition) -> None:
        """Let the next records of a partition arrive, now or when possible."""
        process, engine, queue = self._process, self._world.engine, self._queues[place]
        blocked = max(process.up_blocked_until, self._world.brokers.down_until)
        if not process.alive and (queue[0].is_lost or blocked > engine.now):
            queue.popleft()
        elif blocked > engine.now:
            engine.at(blocked, None, self._arrive, place)
        else:
            sent = queue.popleft()
            first = self._world.brokers.append(process, place, sent.pairs)
            back = max(engine.now + 1, process.down_blocked_until)
            engine.at(back, process, self._answered, sent.future, sent.told(first))

    def _answered(self, future: asyncio.Future[object], told: object) -> None:
        if not future.done():
            future.set_result(told)

    async def flush(self) -> None:
        """Wait until no record is in flight any more."""
        if self._waiting:
            await asyncio.wait(list(self._waiting))

    async def close(self, _timeout_s: float = 0.0) -> None:
        """Do nothing: records in flight arrive."""
