"""The real instance, with simulated clients in place of those that need brokers.

Records of a producer arrive in order in each partition, some time later; they may arrive when the
sender is dead already, or never. No batch is stored twice: the producer is idempotent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from immutables import Map

from kohort.client import AsyncConsumer, AsyncProducer
from kohort.client.producer.arrow.delivery import ArrowDelivery, PartitionRows
from kohort.client.producer.delivery import RecordMetadata
from kohort.group.assignors.interface import Assignment, ClusterView
from kohort.group.subscription import Subscription
from kohort.simulation.engine import Stream
from kohort.simulation.groups.world import ViolationError
from kohort.simulation.streams.base import BaseProcess
from kohort.simulation.streams.scenario import CHANGELOG
from kohort.simulation.streams.work import SimulatedDirectory, SimulatedTask
from kohort.streams.assignment.tasks import Task, Topology
from kohort.streams.assignor import LearnerAssignor
from kohort.streams.events import StreamsEvent
from kohort.streams.log.control import ControlLog
from kohort.streams.log.records import ControlRecord
from kohort.streams.runtime.interface import Application, Pair, StateDirectory, StreamTask
from kohort.streams.runtime.owning import Owning
from kohort.streams.runtime.restoring import Restorer
from kohort.streams.runtime.running import StreamsInstance
from kohort.streams.settings import StreamSettings
from kohort.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.simulation.streams.base import BaseProcess

# Share of the records in flight that are lost with their sender.
_LOST = 0.5

APPLICATION = "app"


def application_of(process: BaseProcess, topology: Topology) -> Application:
    """Return the application of a process."""
    world = process.streams_world

    def make(task: Task, directory: StateDirectory | None) -> StreamTask:
        disk = directory.disk if isinstance(directory, SimulatedDirectory) else None
        return cast("StreamTask", SimulatedTask(process, task, disk))

    def open_directory(task: Task, _origin: str) -> StateDirectory | None:
        return world.open_directory(process, task)

    return Application(
        name=APPLICATION,
        topology=topology,
        make_task=make,
        changelogs={0: (CHANGELOG,)},
        open_directory=open_directory if world.plan.has_disks else None,
        stored=lambda: world.stored(process.name),
    )


class SimulatedInstance(StreamsInstance):
    """An instance of a simulated process.

    Args:
        process: The process.
        topology: The topology of the application.
        settings: How the instance works.
    """

    def __init__(self, process: BaseProcess, topology: Topology, settings: StreamSettings) -> None:
        self.process = process
        super().__init__(application_of(process, topology), settings, Map(), self._happened)

    @property
    def owning(self) -> Owning | None:
        """Its tasks."""
        return self._owning

    def _happened(self, event: StreamsEvent) -> None:
        self.process.streams_world.happened(self.process, event)

    async def _run_as_member(self) -> None:
        process, streams = self.process, self.process.streams
        assignor = cast("LearnerAssignor", process.assignors[0])
        self._counts = process.world.topics.counts()
        consumer = self._consumer = cast("AsyncConsumer", streams.consumer)
        producer = cast("AsyncProducer", LogProducer(process))
        readers: list[Any] = [streams.control_reader, streams.changelog_reader]
        name = self._application.name
        restorer = Restorer(name, self._settings, self._clients, readers[1])
        async with AsyncExitStack() as closed:
            closed.push_async_callback(restorer.close)
            closed.push_async_callback(self._close, consumer)
            control = await closed.enter_async_context(
                SimulatedControl(process, readers[0], producer)
            )
            owning = Owning(
                self._application, assignor, consumer, producer, restorer, control, self._tell
            )
            self._begin(owning)
            await self._run(owning)
        self._raise_failed(owning)

    def _background(self, owning: Owning) -> list[Coroutine[object, object, None]]:
        return [owning.control.follow(), owning.restorer.run(), self._look_after(owning)]


class SimulatedControl(ControlLog):
    """The control topic of a process that can die before and after it appends."""

    def __init__(
        self, process: BaseProcess, consumer: AsyncConsumer, producer: AsyncProducer
    ) -> None:
        super().__init__(APPLICATION, Map(), consumer, producer)
        self._process = process

    async def append(self, *records: ControlRecord) -> None:
        """Append records."""
        kinds = [type(each).__name__.lower() for each in records]
        for kind in kinds:
            self._process.step(f"say {kind}")
        await super().append(*records)
        for kind in kinds:
            self._process.step(f"said {kind}")


def settings_of(process: BaseProcess) -> StreamSettings:
    """Return the settings of an instance."""
    plan = process.streams_world.plan
    return StreamSettings(
        learners=plan.learners(),
        commit_interval_ms=plan.commit_interval_ms,
        checkpoint_interval_ms=plan.checkpoint_interval_ms,
        poll_ms=1_000,
    )


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

    def __init__(self, process: BaseProcess) -> None:
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
            first = self._world.brokers.append(place, sent.pairs)
            self._world.arrived(process, place, sent.pairs)
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


class SimulatedAssignor(LearnerAssignor):
    """An assignor whose process may die before and after it makes a plan.

    Attributes:
        process: Its process.
    """

    process: BaseProcess

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return the user data, and record the true lags beside it."""
        process = self.process
        if process.dies("join"):
            return None
        said = super().subscription_user_data(topics)
        process.joined_at = process.world.engine.now
        process.lags = process.streams_world.lags_of(process)
        return said

    def assign_with_user_data(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Make a plan, and check it."""
        process, world = self.process, self.process.streams_world
        if process.dies("lead"):
            return {}
        try:
            found = super().assign_with_user_data(cluster, subscriptions)
            world.planned(subscriptions, found)
        except ViolationError:
            raise
        except Exception as error:
            world.machine_failed(process.name, error)
            raise
        process.dies("led")
        return found
