"""Follows a region for its page: the control topic, and the ends of its partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import TypedDict

from kohort.client import ConsumerRecord
from kohort.client.admin.aio import AsyncAdminClient
from kohort.errors import KohortError
from kohort.region.errors import ControlTopicError, RegionError
from kohort.region.inspecting import Clock, Sight, look_around
from kohort.region.log.control import ControlLog
from kohort.region.machines.coding import decode
from kohort.region.machines.describing import (
    are_all_gone,
    condition_of,
    lag_of,
    phase_of,
    state_bytes_of,
    what_it_waits_for,
)
from kohort.region.machines.records import OperatorId, RegionPartition
from kohort.region.machines.state import Operator, RegionState
from kohort.region.settings import ClientSettings, admin_settings
from kohort.region.ui.timeline import Timeline
from kohort.types import TopicPartition

log = logging.getLogger("kohort.region")

# How often to request the ends of partitions.
_MEASURE_S = 3.0
_AGAIN_S = 3.0


class PartitionView(TypedDict):
    """A partition as displayed; unknown values are None."""

    topic: str
    partition: int
    position: int | None
    end: int | None
    lag: int | None
    state_bytes: int


class OperatorView(TypedDict):
    """An operator as displayed."""

    name: str
    incarnation: str
    host: str
    process: str
    condition: str
    partitions: list[PartitionView]
    lag: int | None
    state_bytes: int


class Head(TypedDict):
    """The part of the page that is always present."""

    region: str
    running: str
    error: str
    known: bool


class View(Head, total=False):
    """The content of the page; only the head if the region is unknown."""

    group: str
    mode: str
    phase: str
    waits_for: str
    waiting_s: int | None
    group_known: bool
    problem: str
    gave_up: str
    attempt: int
    checkpoint: int
    completed: int
    resets_in_a_row: int
    epoch: int
    controller: str
    operators: list[OperatorView]
    unowned: list[PartitionView]


class Watch:
    """The known state of a region; on one event loop.

    Args:
        region: Name of the region.
        settings: How to reach the brokers.

    Attributes:
        state: The region; None: unknown.
        error: Why it is unknown; empty if it is known, or will be soon.
        timeline: The history; starts over when the log is read again.
        change: Set at the next change, and then replaced by another event.
        running: The page's request in progress; empty: none.
    """

    def __init__(self, region: str, settings: ClientSettings) -> None:
        self.region = region
        self.settings = settings
        self.state: RegionState | None = None
        self.error = ""
        self.timeline = Timeline()
        self.running = ""
        self._clock: Clock | None = None
        # The region and its group when last inspected; None: not inspected yet.
        self._sight: Sight | None = None
        self.change = asyncio.Event()

    async def run(self) -> None:
        """Follow the region until cancelled, and start over after failures."""
        while True:
            try:
                await self._follow()
            except KohortError as error:
                self.error = str(error)
            except Exception as error:  # readers would trust a page that no longer changes
                log.exception("region %s: the page cannot follow it", self.region)
                self.error = f"{type(error).__name__}: {error}"
            self.state = None
            self.tell()
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self) -> None:
        control = ControlLog(self.region, self.settings, create=False)
        self.timeline = Timeline()
        self._clock, self._sight = Clock(control), None
        control.on_record(self._heard)
        control.on_state(self._told)
        tasks: list[asyncio.Task[None]] = []
        try:
            await control.open()
            works = (control.follow(), self._measure(control, self._clock))
            tasks = [asyncio.create_task(each) for each in works]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await control.close()

    def _heard(self, record: ConsumerRecord) -> None:
        try:
            known = None if record.value is None else decode(record.key, record.value)
        except RegionError:
            return  # the reader logs it
        if known is not None:
            self.timeline.take(known, record.timestamp)

    def _told(self, state: RegionState) -> None:
        self.state, self.error = state, ""
        self.tell()

    async def _measure(self, control: ControlLog, clock: Clock) -> None:
        """Check the group, the ends of partitions, and that the control topic exists.

        Until cancelled.

        Raises:
            ControlTopicError: It was deleted.
            KafkaError: The brokers cannot be reached.
        """
        async with AsyncAdminClient(**admin_settings(self.settings)) as admin:
            while True:
                if control.topic not in await admin.list_topics():
                    raise ControlTopicError(
                        f"the control topic {control.topic} was deleted, and with it the state "
                        f"of region {self.region!r}"
                    )
                before = self._looked()
                self._sight = await look_around(control, admin, clock)
                if before != self._looked():
                    self.tell()
                await asyncio.sleep(_MEASURE_S)

    def _looked(self) -> tuple[object, ...]:
        """Return facts that the log does not show."""
        return self._ends(), self._gone(), self._problem

    def _ends(self) -> Mapping[TopicPartition, int]:
        return self._sight.ends if self._sight is not None else {}

    def _gone(self) -> list[Operator]:
        """Return the operators that are no longer in the group, unless others replaced them."""
        seen = self._sight.gone if self._sight is not None else ()
        state = self.state or RegionState()
        return [found for each in seen if (found := state.active(each.id)) is not None]

    @property
    def _problem(self) -> str:
        seen = self._sight
        return "; ".join(filter(None, (seen.problem, seen.unmeasured))) if seen is not None else ""

    # ------------------------------------------------------------------------------------- viewing

    def tell(self) -> None:
        """Wake up the tasks that wait for changes."""
        self.change.set()
        self.change = asyncio.Event()

    def view(self) -> View:
        """Return the content of the page, for JSON."""
        state = self.state
        head: View = {
            "region": self.region,
            "running": self.running,
            "error": self.error,
            "known": state is not None,
        }
        if state is None:
            return head
        owned = {each for operator in state.operators.values() for each in operator.owned}
        rest = sorted(each for each in state.partitions if each not in owned)
        gone = self._gone()
        return {
            **head,
            "group": state.settings.group_id if state.settings else "",
            "mode": state.settings.mode if state.settings else "",
            "phase": phase_of(state, gone),
            "waits_for": what_it_waits_for(state, gone),
            "waiting_s": self._clock.waiting_s(state, gone) if self._clock else None,
            "group_known": self._sight is not None and not self._sight.problem,
            "problem": self._problem,
            "gave_up": state.exhausted,
            "attempt": state.attempt,
            "checkpoint": state.checkpoint,
            "completed": state.completed,
            "resets_in_a_row": state.resets,
            "epoch": state.epoch,
            "controller": _controller(state),
            "operators": [
                self._operator(state, each, gone) for _, each in sorted(state.operators.items())
            ],
            "unowned": [self._partition(state, each) for each in rest],
        }

    def refusal(self) -> str:
        """Return why no request is possible now; empty: it is possible, or this is unknown."""
        if self.running:
            return f"a {self.running} is running already"
        state, gone = self.state, self._gone()
        is_idle = state is not None and (not state.operators or are_all_gone(state, gone))
        return what_it_waits_for(state, gone) if state is not None and is_idle else ""

    def _operator(
        self, state: RegionState, operator: Operator, gone: Collection[Operator]
    ) -> OperatorView:
        partitions = [self._partition(state, each) for each in sorted(operator.owned)]
        lags = [each["lag"] for each in partitions if each["lag"] is not None]
        return {
            "name": operator.id.name,
            "incarnation": operator.id.incarnation[:8],
            "host": operator.host,
            "process": operator.process,
            "condition": condition_of(state, operator, gone),
            "partitions": partitions,
            "lag": sum(lags) if len(lags) == len(partitions) else None,
            "state_bytes": sum(each["state_bytes"] for each in partitions),
        }

    def _partition(self, state: RegionState, partition: RegionPartition) -> PartitionView:
        known = state.partition(partition)
        end = self._ends().get(TopicPartition(partition.topic, partition.partition))
        return {
            "topic": partition.topic,
            "partition": partition.partition,
            "position": known.base,
            "end": end,
            "lag": lag_of(known, end),
            "state_bytes": state_bytes_of(known),
        }


def _controller(state: RegionState) -> str:
    for each in state.operators.values():
        if each.id.incarnation == state.controller:
            return each.id.name
    return str(OperatorId("", state.controller)).strip("/")
