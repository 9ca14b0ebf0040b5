"""One running instance of a stream application: a member of its group that processes and learns.

    instance = StreamsInstance(application, clients={"bootstrap_servers": "localhost:9092"})
    await instance.run()

The group decides which member has which task (`kohort.streams.assignment`); this shell carries out
its decisions. An owner processes a task until another member is due to get it. It then commits,
writes the end of the changelog to the control topic, and releases the task; the learner, which has
replayed the changelog, takes over in the next rebalance.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack

from immutables import Map

from kohort.client import AsyncConsumer, AsyncProducer
from kohort.client.admin.aio import AsyncAdminClient
from kohort.errors import KohortError
from kohort.region.settings import ClientSettings, admin_settings, producer_settings
from kohort.streams.assignment.leader import OtherTopicsError
from kohort.streams.assignment.member import LagMeasured, LeaveSoon, TaskEffects, TaskMemberState
from kohort.streams.assignment.metadata import Lags
from kohort.streams.assignment.tasks import Task
from kohort.streams.assignor import Clock, LearnerAssignor
from kohort.streams.errors import DifferentProgramError, TaskFailedError
from kohort.streams.events import RebalanceAsked, StreamsEvent
from kohort.streams.log.control import ControlLog
from kohort.streams.log.programs import check_group, check_program, different, is_of_the_group
from kohort.streams.log.records import ControlState, Started
from kohort.streams.runtime.changelogs import check_changelogs
from kohort.streams.runtime.committing import changelog_table
from kohort.streams.runtime.failures import AGAIN_S, may_go_on
from kohort.streams.runtime.growth import TopicWatch
from kohort.streams.runtime.holding import Role
from kohort.streams.runtime.interface import Application, StreamTask
from kohort.streams.runtime.membership import (
    ask_to_rebalance,
    check_clients,
    is_out_for_good,
    member_settings,
)
from kohort.streams.runtime.owning import Owning
from kohort.streams.runtime.purging import Purger
from kohort.streams.runtime.reports import now_ms
from kohort.streams.runtime.restoring import Restorer
from kohort.streams.runtime.turns import Turns
from kohort.streams.settings import StreamSettings
from kohort.streams.topics import prepare

log = logging.getLogger("kohort.streams")

# Timeout for leaving the group.
_CLOSING_S = 30.0
# How long the producer may continue after that: its records belong to tasks that have failed or
# been given up, and are processed again.
_SENDING_S = 5.0
# Delay after `stop` until a pending function, send or commit of the main loop is cancelled.
_BREAK_OFF_S = 15.0
# Timeout for closing after that.
_LATE_CLOSING_S = 5.0
# How long a stopped instance waits for a rebalance's plan, in order to commit after it.
_FINISHING_S = 10.0


class StreamsInstance:
    """One instance of a stream application, on one event loop.

    Args:
        application: The application, the same on all instances.
        settings: The instance's settings.
        clients: Kafka's settings in snake_case, as `kohort.Consumer` takes them.
        on_event: Called with each event, on the event loop.

    Raises:
        ConfigError: A setting is unknown, malformed, or reserved for the runtime.
    """

    def __init__(
        self,
        application: Application,
        settings: StreamSettings | None = None,
        clients: ClientSettings = Map(),
        on_event: Callable[[StreamsEvent], None] | None = None,
    ) -> None:
        check_clients(application, clients)
        self._application = application
        self._settings = settings or StreamSettings()
        self._clients = clients
        self._on_event = on_event or _nobody
        self._url = ""
        self._is_over = False
        self._leaves_soon = False
        self._consumer: AsyncConsumer | None = None
        self._owning: Owning | None = None
        self._counts: Mapping[str, int] = {}
        self._refused: DifferentProgramError | None = None
        self._turns = Turns(application.name, self._settings.process_budget)
        self._limit: asyncio.Timeout | None = None
        self._closing_s = _CLOSING_S
        self._committed_at = 0.0
        self._rung_in = -1
        self._checkpointed_at = 0.0

    # ---------------------------------------------------------------------------- the application

    @property
    def member_id(self) -> str:
        """Member id assigned by the group; empty: none."""
        return self._consumer.member_id if self._consumer is not None else ""

    @property
    def tasks(self) -> Mapping[Task, Role]:
        """The tasks of this instance, with its role for each."""
        if self._owning is None:
            return {}
        return {task: each.role for task, each in self._owning.held.items()}

    @property
    def replayed(self) -> int:
        """Number of changelog records that this instance has replayed."""
        return self._owning.restorer.records if self._owning is not None else 0

    @property
    def replaying_s(self) -> float:
        """Seconds spent decoding and applying them, without waiting for the broker."""
        return self._owning.restorer.busy_s if self._owning is not None else 0.0

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions of a topic that the application reads; 0 before start."""
        return self._counts.get(topic, 0)

    def running_task(self, task: Task) -> StreamTask | None:
        """Return a task that is processed here; None if it is not."""
        held = self._owning.held.get(task) if self._owning is not None else None
        return held.work if held is not None and held.role is Role.RUNNING else None

    def followed_task(self, task: Task) -> tuple[StreamTask, int | None] | None:
        """Return a task that is followed here, with its lag in offsets; None if it is not.

        The lag is None if unknown.
        """
        held = self._owning.held.get(task) if self._owning is not None else None
        if self._owning is None or held is None or held.error is not None:
            return None
        if held.role not in (Role.FOLLOWING, Role.RESTORING):
            return None
        return held.work, self._owning.lag(held)

    def start_of(self, task: Task) -> Started | None:
        """Return the start record of the task's owner; None: none, or the task was released."""
        said = self._owning.control.state.tasks.get(task) if self._owning is not None else None
        return said if isinstance(said, Started) else None

    def stop(self) -> None:
        """Make `run` end: it commits, releases its tasks and leaves the group.

        A function, send or commit that does not end within 15 s is cancelled, with a warning that
        names it, and its records are processed again. To let others learn the tasks first, use
        `leave_soon`.
        """
        self._is_over = True
        self._begin_to_end()
        if self._consumer is not None:
            self._consumer.wakeup()

    def _begin_to_end(self) -> None:
        limit = self._limit
        if self._is_over and limit is not None and limit.when() is None:
            limit.reschedule(asyncio.get_running_loop().time() + _BREAK_OFF_S)

    def leave_soon(self) -> None:
        """Let others learn this instance's tasks; `run` ends once all are handed over.

        An instance that is still starting announces this when it joins.
        """
        self._leaves_soon = True
        if self._owning is not None:
            self._owning.assignor.tell(LeaveSoon())

    async def run(self) -> None:
        """Take part in the group until `stop` is called or the instance leaves for good.

        If this is cancelled, it commits and leaves the group, except for tasks that are processing
        a record or sending output: their records since the last commit are processed again. Use
        `stop` to avoid that.

        Raises:
            StreamsError: The application cannot run: topics are missing or unsuitable, members run
                a different program or use the consumer protocol, or another instance uses the state
                directory. Or tasks have failed: their exceptions are the causes.
            KafkaError: The brokers refuse a request that all tasks need.
        """
        with self._application.hold_state():
            await self._run_as_member()

    async def _run_as_member(self) -> None:
        dormant = await self._prepare()
        settings = self._settings
        assignor = LearnerAssignor(
            self._application.topology,
            settings.learners,
            settings.client_tags,
            dormant,
            settings.workers,
            _clock(asyncio.get_running_loop()),
        )
        assignor.protocol_type = settings.protocol_type
        consumer = self._consumer = AsyncConsumer(
            **member_settings(self._application, self._clients, assignor)
        )
        producer = AsyncProducer(**producer_settings(self._clients))
        restorer = Restorer(self._application.name, self._settings, self._clients)
        async with AsyncExitStack() as closed:  # closed in reverse order, even after errors
            closed.push_async_callback(producer.close, _SENDING_S)
            closed.push_async_callback(restorer.close)
            closed.push_async_callback(self._close, consumer)
            control = await closed.enter_async_context(
                ControlLog(self._application.name, self._clients)
            )
            # The program comes last: `follow` reads any program written after it.
            unfit = await check_changelogs(self._application, control, restorer.consumer)
            await check_program(self._application, control, self._clients)
            await control.identify()
            owning = Owning(
                self._application, assignor, consumer, producer, restorer, control, self._tell
            )
            owning.refuse(unfit)
            self._begin(owning)
            await self._run(owning)
        if self._refused is not None:
            raise self._refused
        self._raise_failed(owning)

    async def _close(self, consumer: AsyncConsumer) -> None:
        await consumer.close(self._closing_s)

    def _begin(self, owning: Owning) -> None:
        assignor, consumer = owning.assignor, owning.consumer
        assignor.heard, assignor.counts = self._heard, self._counts
        assignor.is_member = lambda: consumer.generation_id >= 0
        owning.control.heard = self._control_heard
        owning.reports.url = self._url
        self._owning = owning
        if self._leaves_soon:
            self.leave_soon()

    async def _prepare(self) -> Lags:
        await asyncio.to_thread(warm_up)
        async with AsyncAdminClient(**admin_settings(self._clients)) as admin:
            await check_group(admin, self._application.name)
            self._counts = await prepare(
                admin, self._application, self._settings.replication_factor
            )
        found = self._application.stored() if self._application.open_directory else ()
        return Map(dict.fromkeys(found))

    # ------------------------------------------------------------------------------ the main loop

    async def _run(self, owning: Owning) -> None:
        background = [asyncio.create_task(each) for each in self._background(owning)]
        try:
            owning.consumer.subscribe(
                sorted(self._application.topology.topics), listener=owning.listener
            )
            await self._work(owning, background)
        finally:
            await self._leave(owning, background)

    def _background(self, owning: Owning) -> list[Coroutine[object, object, None]]:
        """Run the work besides the main loop for as long as the main loop runs."""
        return [
            owning.control.follow(),
            owning.restorer.run(),
            self._look_after(owning),
            TopicWatch(owning, self._counts).run(),
            Purger(owning, self._clients, self._settings.purge_interval_ms).run(),
        ]

    async def _work(self, owning: Owning, background: Iterable[asyncio.Task[None]]) -> None:
        """Process until `stop`, and commit; cancel work that takes too long after that."""
        limit = self._limit = asyncio.timeout(None)
        try:
            async with limit:
                self._begin_to_end()
                while not self._is_over:
                    await self._step(owning)
                    for each in background:
                        if each.done():
                            each.result()
                await self._finish(owning)
        except TimeoutError:
            if not limit.expired():
                raise
            self._closing_s = _LATE_CLOSING_S
            log.warning(
                "%s: was stopped %g s ago and has not ended: %s. This is cancelled; records that"
                " were not committed are processed again",
                self._application.name,
                _BREAK_OFF_S,
                ", ".join(self._turns.hanging) or "a poll or a commit waits for brokers",
            )
        finally:
            self._limit = None

    async def _finish(self, owning: Owning) -> None:
        """Commit; if the group waits for a plan, continue until it arrives and retry."""
        now = asyncio.get_running_loop().time
        until = now() + _FINISHING_S
        await self._commit(owning)
        while owning.is_unfinished() and now() < until:
            await self._step(owning)
            await self._commit(owning)

    async def _leave(self, owning: Owning, background: Iterable[asyncio.Task[None]]) -> None:
        member = owning.consumer.member_id
        try:
            await self._close(owning.consumer)
        finally:
            try:
                await owning.close()
            finally:
                for each in background:
                    each.cancel()
                await asyncio.gather(*background, return_exceptions=True)
        if member in owning.control.state.leaves:
            await owning.control.forget_leave(member)

    async def _step(self, owning: Owning) -> None:
        timeout_ms = 0 if self._turns.is_busy else self._settings.poll_ms
        try:
            found = await owning.consumer.poll(timeout_ms)
        except KohortError as error:
            if not await self._may_poll_again(error, owning):
                raise
            log.warning("%s: %s; trying again", self._application.name, error)
            await asyncio.sleep(AGAIN_S)
            found = {}
        for partition, records in found.items():
            owning.add(partition, records)
        await self._turns.take(owning)
        now = asyncio.get_running_loop().time()
        if now - self._committed_at >= self._settings.commit_interval_ms / 1000:
            await self._commit(owning)

    async def _may_poll_again(self, error: KohortError, owning: Owning) -> bool:
        if is_out_for_good(owning.consumer):
            return False
        return may_go_on(error) or await self._is_of_an_older_program(error, owning)

    async def _is_of_an_older_program(self, error: KohortError, owning: Owning) -> bool:
        """Whether a member with an older program, which will stop, has prevented a plan.

        Raises:
            DifferentProgramError: This instance has the older program.
        """
        if not isinstance(error.__cause__, OtherTopicsError):
            return False
        return await is_of_the_group(self._application, owning.control)

    async def _commit(self, owning: Owning) -> None:
        self._committed_at = asyncio.get_running_loop().time()
        dirty = [each for each in owning.in_role(Role.RUNNING) if each.is_dirty]
        if dirty:
            await owning.commit(dirty)

    # -------------------------------------------------------------------------- lags and the group

    async def _look_after(self, owning: Owning) -> None:
        """Measure lags, write checkpoints of followed tasks, and let the leader check the time."""
        while True:
            await asyncio.sleep(self._settings.lag_interval_ms / 1000)
            lags = owning.lags()
            if lags:
                owning.assignor.tell(LagMeasured(lags))
            now = asyncio.get_running_loop().time()
            if now - self._checkpointed_at >= self._settings.checkpoint_interval_ms / 1000:
                self._checkpointed_at = now
                owning.checkpoint_followed()
            due = owning.assignor.deadline
            if due is not None and due <= now * 1000:
                self._ask(owning.assignor.tick())

    def _heard(self, effects: TaskEffects) -> None:
        """Carry out the effects of the member's state machine."""
        self._ask(effects.rejoin)
        if effects.is_over and not self._is_over:
            log.info("%s: all tasks are handed over; leaving", self._application.name)
            self.stop()

    def _ask(self, reason: str) -> None:
        if reason and self._consumer is not None and not self._is_over:
            log.info("%s: asking for a rebalance: %s", self._application.name, reason)
            self._tell(RebalanceAsked(at=now_ms(), reason=reason))
            ask_to_rebalance(self._consumer, reason)

    def _control_heard(self, state: ControlState) -> None:
        """Join at once when an owner releases a task: it has no owner until all have joined.

        Otherwise the member would notice the rebalance only at its next heartbeat.
        """
        consumer, owning = self._consumer, self._owning
        if consumer is None or owning is None or self._is_over:
            return
        self._refused = different(self._application, state)
        if self._refused is not None:
            self.stop()
            return
        if not consumer.member_id:
            return
        if consumer.member_id in state.leaves:
            self.leave_soon()
        generation = consumer.generation_id
        is_settled = (
            owning.assignor.session.state is TaskMemberState.RUNNING
        )  # otherwise it joins anyway
        if generation < 0 or generation == self._rung_in or not is_settled:
            return
        for each in state.released.values():
            if each.generation == generation and each.member != consumer.member_id:
                self._rung_in = generation
                ask_to_rebalance(consumer, f"task {each.task} was released by {each.member}")
                return

    # ------------------------------------------------------------------------------------ reporting

    def _tell(self, event: StreamsEvent) -> None:
        try:
            self._on_event(event)
        except Exception:  # errors of the callback must not stop tasks
            log.exception("on_event raised")

    def _raise_failed(self, owning: Owning) -> None:
        failed = owning.reports.failures
        if failed:
            names = ", ".join(str(task) for task in sorted(failed))
            first = failed[min(failed)]
            raise TaskFailedError(
                f"tasks {names} of {self._application.name} failed, the first with"
                f" {type(first).__name__}: {first}. Their records since the last commit are not"
                " committed: they are processed again when an instance starts"
            ) from first


def warm_up() -> None:
    """Load modules now, because loading them later would delay heartbeats.

    The first array of Python objects loads pandas if installed, which takes seconds.
    """
    import pyarrow.compute  # noqa: F401  # likewise

    import kohort.client.net.frames
    import kohort.client.producer.arrow.sender  # noqa: F401  # only to load it

    changelog_table([(b"", None)], 0).column("key").to_pylist()


def _clock(loop: asyncio.AbstractEventLoop) -> Clock:
    """Return a loop's clock in milliseconds."""
    return lambda: int(loop.time() * 1000)


def _nobody(_event: StreamsEvent) -> None:
    """Ignore an event."""
