"""Gives each task of an instance its turn, again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from inspect import isawaitable

from kohort.streams.runtime.holding import Held, Role
from kohort.streams.runtime.owning import Owning
from kohort.types import TopicPartition

log = logging.getLogger("kohort.streams")

# How long a cancelled function may continue.
_ENDING_S = 5.0


class Turns:
    """Processes the records of tasks.

    Args:
        name: Name of the application.
        budget: Maximum number of records of a task in one turn.

    Attributes:
        is_busy: Whether the last turn processed any record.
        hanging: Descriptions of the work that was running when a turn was cancelled.
    """

    def __init__(self, name: str, budget: int) -> None:
        self.is_busy = False
        self.hanging: list[str] = []
        self._name = name
        self._budget = budget
        self._is_broken_off = False
        self._full: set[TopicPartition] = set()

    async def take(self, owning: Owning) -> None:
        """Give each running task its turn, then pause fetching for tasks with enough records."""
        self.is_busy = False
        await self._process_all(owning)
        self._press_back(owning)

    async def _process_all(self, owning: Owning) -> None:
        """Process all tasks; tasks that await a function run concurrently."""
        running = owning.in_role(Role.RUNNING)
        awaited: list[asyncio.Task[None]] = []
        try:
            for held in running:
                if held.role is Role.RUNNING:  # otherwise stopped while another task sent
                    await self._process(owning, held, awaited)
            if awaited:
                await asyncio.wait(awaited)
        except BaseException:
            self._is_broken_off = True
            busy = [each for each in running if not each.is_idle.is_set()]
            self.hanging = [f"task {each.task} {_doing(each)}" for each in busy]
            await _end(awaited)
            for held in busy:
                if not held.is_idle.is_set():  # the record it has started will not be finished
                    held.is_torn = True
                    held.is_idle.set()
            raise
        for each in awaited:
            each.result()

    async def _process(self, owning: Owning, held: Held, awaited: list[asyncio.Task[None]]) -> None:
        self._tell_ends(owning, held)
        held.is_idle.clear()
        try:
            done = held.work.process_some(self._budget)
        except Exception as error:  # noqa: BLE001  # the task fails alone
            held.is_idle.set()
            owning.fail(held, error)
            return
        if isawaitable(done):
            awaited.append(asyncio.create_task(self._await(owning, held, done)))
        else:
            await self._processed(owning, held, done)

    def _tell_ends(self, owning: Owning, held: Held) -> None:
        """Tell a task which inputs were read to their ends, for the timestamp order."""
        if len(held.inputs) > 1:
            for partition in held.inputs & owning.consumer.assignment():
                held.work.set_at_end(partition, owning.consumer.current_lag(partition) == 0)

    async def _await(self, owning: Owning, held: Held, done: Awaitable[int]) -> None:
        try:
            count = await done
        except (Exception, asyncio.CancelledError) as error:  # only this task fails
            if self._is_broken_off and isinstance(error, asyncio.CancelledError):
                raise
            if owning.held.get(held.task) is held:
                owning.fail(held, error)
            else:  # its stores were closed meanwhile
                log.info("%s: task %s was lost: %s", self._name, held.task, error)
            held.is_idle.set()
        else:
            await self._processed(owning, held, count)

    async def _processed(self, owning: Owning, held: Held, count: int) -> None:
        if count:
            self.is_busy = held.is_dirty = True
        try:
            if held.work.outputs and owning.held.get(held.task) is held:
                await owning.commits.send_outputs(held)
        except Exception as error:  # noqa: BLE001  # the task fails alone
            owning.fail(held, error)
        held.is_idle.set()

    def _press_back(self, owning: Owning) -> None:
        """Pause fetching for tasks that have enough records."""
        running = owning.in_role(Role.RUNNING)
        full = {p for each in running for p in each.inputs if each.work.is_paused(p)}
        owned = {p for each in running for p in each.inputs} & owning.consumer.assignment()
        owning.consumer.pause(*(full - self._full) & owned)
        owning.consumer.resume(*(self._full - full) & owned)
        self._full = full


async def _end(awaited: Iterable[asyncio.Task[None]]) -> None:
    """Cancel awaited functions; first start those not yet begun, so that they can clean up."""
    jobs = list(awaited)
    if jobs:
        await asyncio.sleep(0)
        for each in jobs:
            each.cancel()
        _, pending = await asyncio.wait(jobs, timeout=_ENDING_S)
        if pending:
            log.warning("%d functions are still running although they were cancelled", len(pending))


def _doing(held: Held) -> str:
    return "sends its output" if held.is_torn else "awaits a function of the program"
