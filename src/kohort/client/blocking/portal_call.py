"""A coroutine on a loop in another thread, and the thread that waits for it and runs its calls.

There are no locks here, as in `loop_thread`. The pending calls are kept apart from the queue items
that wake the waiting thread: a signal handler may raise between any two bytecodes, and an item that
was just taken from its queue is then lost.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from threading import get_ident
from typing import TypeAlias, TypeVar, cast

from msgspec import Struct

from kohort.client.blocking import lifecycle
from kohort.client.net.backoff import Deadline
from kohort.errors import LocalProtocolError

R = TypeVar("R")
T = TypeVar("T")

Made: TypeAlias = Coroutine[object, object, object]


class TooLongError(Exception):
    """The coroutine did not finish in time."""


class Running(Struct, eq=False):
    """A loop that runs in a thread.

    Attributes:
        loop: The loop.
        thread: The thread.
        pid: The process; no other process may use loop and thread.
        context: The context of callbacks. Not the caller's, whose objects it would keep alive.
        ended: Done when the loop has to end.
        is_ending: Whether no more work can be started.
    """

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    pid: int
    context: Context
    ended: asyncio.Future[None]
    is_ending: bool = False

    @property
    def is_here(self) -> bool:
        """Whether this is the process of the loop."""
        return self.pid == os.getpid()

    def stop(self) -> None:
        """End the loop; on the loop."""
        if not self.ended.done():
            self.ended.set_result(None)

    def post(self, function: Callable[..., object], *args: object) -> bool:
        """Make the loop call a function; return whether that is possible."""
        try:
            self.loop.call_soon_threadsafe(function, *args, context=self.context)
        except RuntimeError:
            if self.loop.is_closed():
                return False
            raise  # raised by a signal handler
        return True


class _Call(Struct, eq=False):
    """A call that the loop requests in the application's thread.

    Attributes:
        function: The function.
        done: The future of the result, which the loop awaits.
        is_begun: Whether the function was called; it may have been interrupted.
    """

    function: Callable[[], object]
    done: asyncio.Future[object]
    is_begun: bool = False


class PortalCall:
    """A coroutine on a loop that calls functions in the thread that waits for it.

    Args:
        running: The loop; it runs in another thread.
        goes_on: Whether it continues when an exception from a signal handler ends the wait, so that
            another wait may follow.

    Attributes:
        owner: The waiting thread.
        is_over: Whether it has ended.
    """

    def __init__(self, running: Running, *, goes_on: bool = False) -> None:
        self.owner = get_ident()
        self.is_over = False
        self._running = running
        self._goes_on = goes_on
        self._task: asyncio.Task[object] | None = None
        self._failure: BaseException | None = None
        self._is_cancelled = self._is_alone = False
        self._calls: deque[_Call] = deque()
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()

    def start(self, make: Callable[[PortalCall], Made]) -> bool:
        """Start the coroutine unless it has started; return whether there is a loop for it."""
        self.owner = get_ident()
        return self._running.post(self._start, make)

    def _start(self, make: Callable[[PortalCall], Made]) -> None:
        if self._task is not None or self.is_over:
            return
        if self._is_cancelled or self._running.is_ending:
            self.abandon()
            return
        try:
            self._task = self._running.loop.create_task(make(self))
        except BaseException as error:  # noqa: BLE001  # raised in the waiting thread
            self._failure = error
            self.abandon()
        else:
            self._task.add_done_callback(lambda _: self.abandon())

    async def call(self, function: Callable[[], R]) -> R:
        """Call a function in the waiting thread and return its result."""
        if self._is_alone:
            return cast("R", None)
        done: asyncio.Future[object] = self._running.loop.create_future()
        self._calls.append(_Call(function, done))
        self._signals.put(None)
        return cast("R", await done)

    def until_finished(self, deadline: Deadline) -> None:
        """Run requested calls until the coroutine is finished; in the waiting thread.

        Raises:
            TooLongError: The deadline passed first.
        """
        while True:
            while self._calls:
                self._make(self._calls[0])
                self._calls.popleft()
            if self.is_over:
                return
            try:
                self._signals.get(timeout=deadline.left_s())
            except queue.Empty:
                raise TooLongError from None

    def _make(self, call: _Call) -> None:
        if call.done.done():  # it was cancelled
            return
        if call.is_begun:  # an earlier wait was interrupted during this call, which has already run
            self._answer(succeed, call.done, None)
            return
        call.is_begun = True
        try:
            result = call.function()
        except Exception as error:  # noqa: BLE001  # raised where the call was requested
            self._answer(fail, call.done, error)
        else:
            self._answer(succeed, call.done, result)

    def _answer(self, *call: object) -> None:
        if not self._running.is_here:  # the function has forked, and this is the child
            raise lifecycle.forked()
        function, *args = call
        self._running.post(cast("Callable[..., object]", function), *args)

    def interrupt(self, error: BaseException) -> None:
        """End the coroutine, or let it continue, after an exception has ended the wait."""
        if isinstance(error, TooLongError) or not self._goes_on:
            self.cancel()

    def cancel(self) -> None:
        """Cancel the coroutine; in the waiting thread."""
        self._is_cancelled = True
        if self._running.is_here:
            self._running.post(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def leave_alone(self) -> None:
        """Let the coroutine continue without the application's calls; on the loop."""
        self._is_alone = True
        for call in list(self._calls):
            succeed(call.done, None)

    def abandon(self) -> None:
        """Let the waiting thread continue."""
        self.is_over = True
        self._signals.put(None)

    def result(self) -> object:
        """Return the coroutine's result, or raise its exception."""
        if not self._running.is_here:
            raise lifecycle.forked()
        if self._failure is not None:
            raise self._failure
        if self._task is None or not self._task.done():
            raise closed("the client was closed meanwhile")
        try:
            return self._task.result()
        except asyncio.CancelledError:  # only `close` cancels awaited work
            raise closed("the client was closed meanwhile") from None


def closed(text: str = "the client is closed") -> LocalProtocolError:
    """Return the error of a call to a client that was closed."""
    return LocalProtocolError(text)


def succeed(done: asyncio.Future[T], result: T) -> None:
    """Set the result of a future of user code, unless its waiters are gone."""
    if not done.done():
        done.set_result(result)


def fail(done: asyncio.Future[T], error: BaseException) -> None:
    """Set the error of a future of user code, unless its waiters are gone.

    A future does not accept StopIteration (PEP 479 converts it to a RuntimeError in generators,
    too), and SystemExit from user code must not end the loop.
    """
    if done.done():
        return
    if isinstance(error, StopIteration) or not isinstance(error, Exception):
        wrapped = RuntimeError(f"it raised {error!r}")
        wrapped.__cause__ = error
        error = wrapped
    done.set_exception(error)
