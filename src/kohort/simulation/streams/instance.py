"""The real instance, with simulated clients in place of those that need brokers."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

from immutables import Map

from kohort.client import AsyncConsumer, AsyncProducer
from kohort.simulation.streams.brokers import LogProducer
from kohort.simulation.streams.work import CHANGELOG, SimulatedDirectory, SimulatedTask
from kohort.streams.assignment.tasks import Task, Topology
from kohort.streams.assignor import LearnerAssignor
from kohort.streams.events import StreamsEvent
from kohort.streams.log.control import ControlLog
from kohort.streams.log.records import ControlRecord
from kohort.streams.runtime.interface import Application, StateDirectory, StreamTask
from kohort.streams.runtime.owning import Owning
from kohort.streams.runtime.restoring import Restorer
from kohort.streams.runtime.running import StreamsInstance
from kohort.streams.settings import StreamSettings

if TYPE_CHECKING:
    from kohort.simulation.streams.process import StreamsProcess

APPLICATION = "app"


def application_of(process: StreamsProcess, topology: Topology) -> Application:
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

    def __init__(
        self, process: StreamsProcess, topology: Topology, settings: StreamSettings
    ) -> None:
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
        self, process: StreamsProcess, consumer: AsyncConsumer, producer: AsyncProducer
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


def settings_of(process: StreamsProcess) -> StreamSettings:
    """Return the settings of an instance."""
    plan = process.streams_world.plan
    return StreamSettings(
        learners=plan.learners(),
        commit_interval_ms=plan.commit_interval_ms,
        checkpoint_interval_ms=plan.checkpoint_interval_ms,
        poll_ms=1_000,
    )
