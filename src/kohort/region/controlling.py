"""Runs the state machine of a controller: each operator has a candidate, and one is active.

A group with one partition chooses the candidate that tries to take over. The log decides which one
is the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from kohort.client import AsyncConsumer
from kohort.client.admin.aio import AsyncAdminClient
from kohort.client.net.transport import now_ms
from kohort.errors import BrokerUnavailableError, KafkaError, KohortError
from kohort.region.group_members import described
from kohort.region.machines.events import (
    Append,
    Appended,
    Asked,
    Chosen,
    ControllerEffects,
    ControllerInput,
    Folded,
    GroupDescribed,
    Publish,
    PublishDone,
    PublishFailed,
    Tick,
    Trim,
)
from kohort.region.metrics import ControllerMetrics
from kohort.region.settings import ClientSettings, Patience, admin_settings, consumer_settings

if TYPE_CHECKING:
    from kohort.client.config.settings import ConsumerSettings
    from kohort.region.log.control import ControlLog
    from kohort.region.machines.controller import ControllerMachine
    from kohort.region.machines.state import RegionState
    from kohort.region.sinks.sink import Publisher

log = logging.getLogger("kohort.region")

_DESCRIBE_S = 1.0
_POLL_MS = 500
# The candidates' group detects a killed process as soon as the operators' group does.
_OF_MEMBERS = ("session_timeout_ms", "heartbeat_interval_ms")


class Controlling:
    """One candidate on the event loop.

    Args:
        machine: The state machine.
        control: The region's log; `follow` must be running.
        publisher: Publishes output.
        settings: How to reach the brokers.
        group_id: The group of the operators.
    """

    def __init__(
        self,
        machine: ControllerMachine,
        control: ControlLog,
        publisher: Publisher,
        settings: ClientSettings,
        group_id: str,
    ) -> None:
        self.machine = machine
        self.metrics = ControllerMetrics()
        self._state: RegionState | None = None
        self._control = control
        self._publisher = publisher
        self._settings = settings
        self._group_id = group_id
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_chosen = False

    async def run(self) -> None:
        """Act as a candidate until cancelled.

        Raises:
            KafkaError: The brokers refuse a request that a controller needs.
        """
        group = f"{self._control.topic}-controller"
        admin_of = admin_settings(self._settings)
        beats = {each: self._settings[each] for each in _OF_MEMBERS if each in self._settings}
        own = consumer_settings(self._settings, group_id=group, enable_auto_commit=False)
        reads = cast("ConsumerSettings", {**own, **beats})
        async with (
            AsyncConsumer(**reads) as chooser,
            AsyncAdminClient(**admin_of) as admin,
        ):
            chooser.subscribe([self._control.topic])
            self._begin(self._choose(chooser))
            self._begin(self._describe(admin))
            self._admin = admin
            try:
                await self._failed
            finally:
                await self.stop()

    async def _choose(self, chooser: AsyncConsumer) -> None:
        patience = Patience()
        while True:
            try:
                await chooser.poll_membership(_POLL_MS)
            except BrokerUnavailableError:
                if not patience.is_left():
                    raise
                continue
            is_chosen = bool(chooser.assignment())
            if is_chosen != self._is_chosen:
                self._is_chosen = is_chosen
                self.tell(Chosen(is_chosen))

    async def _describe(self, admin: AsyncAdminClient) -> None:
        while True:
            await asyncio.sleep(_DESCRIBE_S)
            if self._is_chosen:
                try:
                    group = await described(admin, self._group_id)
                except KafkaError as error:
                    log.warning("group %s cannot be described: %s", self._group_id, error)
                else:
                    self.tell(GroupDescribed(group.members))

    # --------------------------------------------------------------------------------- the machine

    def folded(self, state: RegionState) -> None:
        """Process the region's new state."""
        was_controller = self._is_controller
        self._state = state
        if self._is_controller and not was_controller:
            log.info(
                "region %s: this process is the controller, epoch %d; checkpoint %d is the last",
                self._control.region, state.epoch, state.completed,
            )  # fmt: skip
        elif was_controller and not self._is_controller:
            log.info(
                "region %s: this process is no longer the controller: epoch %d belongs to %.8s",
                self._control.region, state.epoch, state.controller,
            )  # fmt: skip
        self.metrics.folded(state, now_ms())
        self.tell(Folded(state))

    @property
    def _is_controller(self) -> bool:
        """Whether the log names this candidate as the controller."""
        state = self._state
        return state is not None and state.controller == self.machine.config.incarnation

    async def show_last(self, patience_s: float) -> None:
        """If this is the controller, wait until the output of complete checkpoints is published.

        Args:
            patience_s: Timeout in seconds.
        """
        try:
            async with asyncio.timeout(patience_s):
                while self._is_controller and self._state and self._state.unpublished:
                    await self._control.advanced()
        except TimeoutError:
            state = self._state
            assert state is not None
            log.warning(
                "region %s: this controller ends, and the output of checkpoint %d is complete but "
                "not visible within %g s; the next controller publishes it",
                self._control.region, state.unpublished[0].checkpoint, patience_s,
            )  # fmt: skip

    def ask(self, what: str, *, force: bool = False, why: str = "") -> None:
        """Ask the region for a drain, a reset or a stop."""
        self.tell(Asked(what, force, why))

    def tell(self, event: ControllerInput) -> None:
        """Pass an input to the state machine, and carry out its effects.

        Timers also call this, so an error ends the candidate here.
        """
        try:
            self._decide(event)
        except Exception as error:  # noqa: BLE001  # `run` raises it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    def _decide(self, event: ControllerInput) -> None:
        effects = self.machine.decide(event, now_ms())
        self.machine.install(effects)
        for fact in effects.observed:
            level = logging.WARNING if fact.is_warning else logging.INFO
            log.log(level, "region %s: %s", self._control.region, fact.text)
        self._do(effects)

    def _do(self, effects: ControllerEffects) -> None:
        if effects.append is not None:
            self._begin(self._append(effects.append))
        if effects.trim is not None:
            self._begin(self._trim(effects.trim))
        if effects.publish is not None:
            self._begin(self._publish(effects.publish))
        for member in effects.remove_from_group:
            self._begin(self._remove(member))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if effects.deadline is not None:
            self._timer = self._loop.call_at(effects.deadline / 1000, self.tell, Tick())

    async def _append(self, append: Append) -> None:
        self.tell(Appended(append.token, await self._control.append(append.records)))

    async def _trim(self, trim: Trim) -> None:
        state = self._control.reader.state
        writer = (state.epoch, state.controller) if state is not None else (0, "none")
        self.tell(Appended(trim.token, await self._control.trim(trim.before, writer)))

    async def _publish(self, publish: Publish) -> None:
        outputs = publish.outputs
        try:
            await asyncio.to_thread(self._publisher.check, publish.shown)
            await asyncio.to_thread(self._publisher.publish, publish.checkpoint, outputs)
        except Exception as error:  # any error of the sink leads to a retry
            is_known = isinstance(error, (OSError, KohortError))
            log.error(
                "region %s: the output of checkpoint %d cannot become visible, will try "
                "again: %s",
                self._control.region, publish.checkpoint, error,
                exc_info=not is_known,
            )  # fmt: skip
            cause = str(error) if is_known else f"{type(error).__name__}: {error}"
            self.tell(PublishFailed(publish.checkpoint, cause))
        else:
            self.tell(PublishDone(publish.checkpoint))

    async def _remove(self, member_id: str) -> None:
        try:
            await self._admin.remove_group_members(
                self._group_id, [member_id], "evicted from its region"
            )
        except KohortError as error:
            log.warning("member %s stays in group %s: %s", member_id, self._group_id, error)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    async def stop(self) -> None:
        """Stop at once."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
