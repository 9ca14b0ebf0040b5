"""A process with an instance of the application: a member of the group, driven by its own loop.

The instance is real. Its consumer (on top of the member's machine), its producer, and its readers
of logs are simulated.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from kohort.client.consumer.listener import Listens, RebalanceListener, Told, call_listener
from kohort.client.consumer.records import ConsumerRecord
from kohort.errors import (
    ErrorCode,
    KohortError,
)
from kohort.group.effects import Callback
from kohort.group.events import Ownership
from kohort.group.member.events import (
    CallbackDone,
    Polled,
)
from kohort.simulation.engine import Stream
from kohort.simulation.groups.application import Application
from kohort.simulation.groups.base import REQUEST_TIMEOUT_MS, BaseClient, BaseWorld
from kohort.simulation.groups.client import Client
from kohort.simulation.groups.facts import Delivered
from kohort.simulation.groups.network import Done
from kohort.simulation.streams.base import (
    BaseProcess,
    BaseStreamsApplication,
    BaseStreamsWorld,
    Records,
)
from kohort.simulation.streams.consumer import GroupConsumer
from kohort.simulation.streams.instance import SimulatedAssignor, SimulatedInstance
from kohort.simulation.streams.loop import ProcessDiedError, VirtualLoop
from kohort.simulation.streams.reader import LogReader
from kohort.streams.assignment.tasks import Task
from kohort.streams.runtime.owning import Owning
from kohort.streams.runtime.running import StreamsInstance
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.membership import HeartbeatResponse, SyncGroupResponse

if TYPE_CHECKING:
    from kohort.simulation.runs.scenario import MemberPlan

_GOOD = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
_RESTART_MS = 5_000


class StreamsProcess(Client, BaseProcess):
    """A process that can die at any step of its loop."""

    def __init__(self, world: BaseWorld, plan: MemberPlan, life: int) -> None:
        self.streams_world = cast("BaseStreamsWorld", world)
        self.dies_at = ""
        self.slow_until = 0
        self.replays_per_s = 0
        self.heard_at = world.engine.now
        self.leaves_since: int | None = None
        self.joined_at = 0
        self.lags: dict[Task, int] = {}
        super().__init__(world, plan, life)
        for each in self.assignors:
            cast("SimulatedAssignor", each).process = self

    @property
    def streams(self) -> StreamsApplication:
        """Its application."""
        return cast("StreamsApplication", self.application)

    @property
    def is_session_over(self) -> bool:
        """Whether the coordinator may have removed the member, as far as it can know."""
        return self.world.engine.now - self.heard_at >= self.plan.session_timeout_ms

    def step(self, name: str) -> None:
        """Reach a step of its loop.

        Raises:
            ProcessDiedError: It dies there.
        """
        if self.dies(name):
            raise ProcessDiedError(name)

    def dies(self, name: str) -> bool:
        """Kill it if it is to die at a step, and return whether it was."""
        is_dying = self.alive and self.dies_at == name
        if is_dying:
            self.world.note(f"died at: {name}")
            self.die(_RESTART_MS)
        return is_dying

    def request(
        self, purpose: str, request: Message, done: Done, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> None:
        """Send a request, and note whether the coordinator accepts it as a member's."""
        sent_at = self.world.engine.now

        def answered(response: Message | None) -> None:
            codes: tuple[int, ...] = ()
            if isinstance(response, HeartbeatResponse):
                codes = _GOOD
            elif isinstance(response, SyncGroupResponse):
                codes = _GOOD[:1]
            if codes and getattr(response, "error_code", -1) in codes:
                self.heard_at = max(self.heard_at, sent_at)
            done(response)

        super().request(purpose, request, answered, timeout_ms)


class StreamsApplication(Application, BaseStreamsApplication):
    """The driver of the member: the instance, on a loop of its own.

    Attributes:
        instance: The instance; None before the start.
    """

    consumer: GroupConsumer
    control_reader: LogReader
    changelog_reader: LogReader

    def __init__(self, client: BaseClient) -> None:
        super().__init__(client)
        self.process = cast("StreamsProcess", client)
        self.loop = VirtualLoop(client, self.process.streams_world.raise_broken)
        self.consumer = GroupConsumer(self)
        self.control_reader = LogReader(self.process, is_throttled=False)
        self.changelog_reader = LogReader(self.process, is_throttled=True)
        self.instance: SimulatedInstance | None = None
        self.is_woken = False
        self.listener_object: Listens = RebalanceListener()
        self._news: asyncio.Future[object] | None = None
        self._called: list[Callback] = []
        self.last_error: KohortError | None = None
        name = f"{client.name}#{client.life}"
        self._takes = Stream(client.world.scenario.seed, "processing", name)

    @property
    def is_fatal(self) -> bool:
        """Return whether the member has failed."""
        return self.client.machine.state.name in self.client.protocol.fatal

    @property
    def owning(self) -> Owning | None:
        """The tasks of the instance; None: it does not run."""
        return self.instance.owning if self.instance is not None else None

    @property
    def lags_heard_at(self) -> int:
        """Return when the changelogs' ends were last fetched."""
        return self.changelog_reader.heard_at

    def start(self) -> None:
        """Run the instance."""
        instance = self.process.streams_world.instance(self.process)
        self.instance = cast("SimulatedInstance", instance)
        self.loop.begin(self._live(instance))

    def join(self) -> None:
        """Let the member join its group."""
        self.client.tell(self._subscription())

    async def _live(self, instance: StreamsInstance) -> None:
        restart_ms = 0
        try:
            await instance.run()
        except Exception as error:  # noqa: BLE001  # an instance that ends with an error is restarted
            self.process.streams_world.ended(self.process, error)
            restart_ms = _RESTART_MS
        self.client.die(restart_ms)

    def processing_ms(self) -> int:
        """Return how long the next records take."""
        return int(self._takes.exponential(self.client.plan.process_ms))

    # ------------------------------------------------------------------- called by the simulation

    def wake(self) -> None:
        """End a waiting poll if there is something to do."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def grown(self, place: TopicPartition) -> None:
        """Check a log for new records."""
        self.control_reader.grown(place)
        self.changelog_reader.grown(place)

    def stall(self, until: int) -> None:
        """Do not begin another poll before a time."""
        self.stalled_until = max(self.stalled_until, until)

    def close(self) -> None:
        """Stop the instance: it commits and leaves."""
        self.closing = True
        self.closing_since = self.client.world.engine.now
        if self.instance is not None:
            self.loop.call_soon(self.instance.stop)

    # ---------------------------------------------------------------------------------- its polls

    async def poll(self, timeout_ms: int) -> Records:  # type: ignore[override]  # driven by its loop
        """Make due calls, and return records once there are any."""
        await asyncio.sleep(max(0, self.stalled_until - self.client.world.engine.now) / 1000)
        self.client.ask(Polled())
        until = self.loop.time() + timeout_ms / 1000
        while True:
            self.serve()
            if self._errors:
                self.client.world.note("error raised")
                self.last_error = self._errors.popleft()
                raise self.last_error
            if self.is_fatal and self.last_error is not None:
                raise self.last_error  # at every poll, as the client does
            if self.is_woken:
                self.is_woken = False
                return {}
            self._find_positions()
            found = self._taken()
            left = until - self.loop.time()
            if found or left <= 0:
                return found
            await self.news_within(left)

    async def news_within(self, seconds: float) -> None:
        """Wait for news of the member, for some time."""
        self._news = self.loop.create_future()
        timer = self.loop.call_later(seconds, self.wake)
        await self._news
        timer.cancel()

    def _taken(self) -> Records:
        """Return the fetched records."""
        client, left = self.client, self.client.plan.batch
        world, found = client.world, cast("Records", {})
        for partition in sorted(client.machine.fetchable):
            position = self.positions.get(partition)
            if position is None or not left or partition in self.paused:
                continue
            until = min(world.topics.end(partition), position + left)
            if position < until:
                left -= until - position
                self.positions[partition] = until
                if world.tracing:
                    world.trace.records(world.engine.now, client.name, partition, position, until)
                if world.checking:
                    world.check(Delivered(client, partition, position, until))
                found[partition] = [
                    ConsumerRecord(*partition, offset, 0, 0, None, None, (), -1)
                    for offset in range(position, until)
                ]
        return found

    # ---------------------------------------------------------------------------------- its calls

    def serve(self) -> None:
        """Make due calls; slow ones do not delay the others."""
        while self.callbacks and self.client.alive:
            self._make(self.callbacks.popleft())

    def _make(self, callback: Callback) -> None:
        self.calling = callback
        self._called.append(callback)
        change = self._change(callback)
        if change is Ownership.ASSIGNED:
            self._tell_assignor(callback)
            for partition in sorted(callback.partitions):
                self.positions[partition] = None
                self._lives[partition] = self._lives.get(partition, 0) + 1
        self._say(change, callback.partitions, begins=True)
        if change is Ownership.ASSIGNED:
            self.believes |= callback.partitions
        self.process.step(f"told of what is {change.value}")
        told: Told = None
        try:
            told = call_listener(self.listener_object, change, callback.partitions)
        except KohortError as error:
            self._errors.append(error)
        if told is None:
            self._made(callback, change)
        else:
            self.loop.begin(self._later(callback, change, told))

    def _tell_assignor(self, callback: Callback) -> None:
        try:
            self.client.machine.tell_assignor(callback)
        except KohortError as error:
            self._errors.append(error)

    async def _later(self, callback: Callback, change: Ownership, told: Told) -> None:
        try:
            await told  # type: ignore[misc]  # the listener of streams returns coroutines only
        except KohortError as error:
            self._errors.append(error)
        self._made(callback, change)

    def _made(self, callback: Callback, change: Ownership) -> None:
        client = self.client
        if not client.alive:
            return
        if change is not Ownership.ASSIGNED:
            self.let_go(callback.partitions)
        self._called.remove(callback)
        self.calling = self._called[-1] if self._called else None
        self._say(change, callback.partitions, begins=False)
        if change is not Ownership.ASSIGNED:
            for partition in sorted(callback.partitions):
                self.stored.pop(partition, None)
        client.tell(CallbackDone(callback.token))
        self.wake()
