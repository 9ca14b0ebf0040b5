"""An asyncio loop in virtual time, whose steps are events of the simulation.

Each process has one. Its steps happen like all events of the process: not while it is suspended,
and never once it is dead.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from math import ceil
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, Unpack, cast

from kohort.errors import KohortError

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseClient

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# A cancelled task may await something once more, which is cancelled, too.
_ENDINGS = 20


class ProcessDiedError(BaseException):
    """The process has died in the middle of a step."""


class VirtualLoop:
    """The loop of one process: the part that asyncio and the runtime of streams use.

    Args:
        client: The process.
        check: Called after each step; raises the error that ends the run.
    """

    def __init__(self, client: BaseClient, check: Callable[[], None]) -> None:
        self._client = client
        self._check = check
        self._tasks: dict[asyncio.Task[object], None] = {}
        self._ready: deque[events.Handle] = deque()
        self._is_ending = False
        self._loop = cast("asyncio.AbstractEventLoop", self)

    def begin(self, work: Coroutine[object, object, None]) -> None:
        """Start a coroutine as a task."""
        _ = self.create_task(work)

    def end(self) -> None:
        """End everything at once, without effects, because the process is dead."""
        self._is_ending = True
        for _ in range(_ENDINGS):
            if not self._tasks:
                break
            for task in list(self._tasks):
                task.cancel()
            while self._ready:
                self._run([self._ready.popleft()])

    # ------------------------------------------------------------------------- what asyncio calls

    def time(self) -> float:
        """Return the time by the clock of the process, in seconds."""
        return self._client.now() / 1000

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> events.Handle:
        """Schedule a call for the next step."""
        handle = events.Handle(callback, args, self._loop, context)
        self._ready.append(handle)
        if len(self._ready) == 1 and not self._is_ending:
            self._client.world.engine.after(0, self._client, self._step)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> events.TimerHandle:
        """Schedule a call after a time in seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> events.TimerHandle:
        """Schedule a call at a time."""
        handle = events.TimerHandle(when, callback, args, self._loop, context)
        self._plan(max(0, ceil((when - self.time()) * 1000)), handle)
        return handle

    def _plan(self, delay_ms: int, handle: events.Handle) -> None:
        if self._is_ending:
            self._ready.append(handle)
        else:
            self._client.world.engine.after(delay_ms, self._client, self._run, (handle,))

    def _step(self) -> None:
        """Run the ready calls; calls that become ready run in the next step."""
        ready = list(self._ready)
        self._ready.clear()
        self._run(ready)

    def _run(self, handles: Sequence[events.Handle]) -> None:
        asyncio._set_running_loop(self._loop)  # noqa: SLF001  # made for implementations of loops
        try:
            for handle in handles:
                if not (self._client.alive or self._is_ending):
                    self._ready.append(handle)  # `end` has it cancelled
                elif not handle.cancelled():
                    handle._run()  # noqa: SLF001  # likewise
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001  # likewise
        self._check()

    def create_future(self) -> asyncio.Future[object]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self._loop)

    def create_task(
        self,
        coro: Coroutine[object, object, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a coroutine as a task."""
        task = asyncio.Task(coro, loop=self._loop, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        is_known = isinstance(error, KohortError | TimeoutError)
        if isinstance(error, Exception) and not is_known and not self._is_ending:
            self._client.world.machine_failed(self._client.name, error)

    def get_debug(self) -> bool:
        """Whether asyncio is in debug mode; never."""
        return False

    def is_running(self) -> bool:
        """Whether it runs: as long as the process does."""
        return True

    def is_closed(self) -> bool:
        """Whether it is closed; never."""
        return False

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Handle an exception that was not retrieved; those that matter end the run."""

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Note that a timer was cancelled."""
