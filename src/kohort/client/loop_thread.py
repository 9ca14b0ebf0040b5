"""A loop in a thread of its own: what stands behind the blocking faces.

No lock guards anything here. The handler of a signal runs in the main thread between any two
bytecodes, and may call in again: a lock that the interrupted call holds would never be released.
What happens once is decided by `dict.setdefault`, threads wait on `queue.SimpleQueue`, whose `put`
may interrupt its `get`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from threading import get_ident
from typing import TypeVar, cast

from kohort.client import lifecycle
from kohort.client.backoff import Deadline
from kohort.client.lifecycle import Claim, Farewell
from kohort.errors import LocalProtocolError
from kohort.values import dataclass

log = logging.getLogger("kohort.client")

T = TypeVar("T")
R = TypeVar("R")

# What the loop wants done in the application's thread.
_Call = tuple[Callable[[], object], "asyncio.Future[object]"]

# How much longer than asked for closing may take: connections close after the group was left.
_GRACE_S = 2.0


class _TooLongError(Exception):
    """The loop did not do in time what it was given."""


@dataclass(slots=True, eq=False)
class _Running:
    """A loop that runs in a thread.

    Attributes:
        loop: The loop.
        thread: The thread.
        pid: The process; in any other one both are nobody's.
        context: What callbacks run in. Not the caller's: whatever it refers to would live on.
        ended: Done when the loop shall end.
        is_ending: Whether nothing more can be started.
    """

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    pid: int
    context: Context
    ended: asyncio.Future[None]
    is_ending: bool = False

    @property
    def is_here(self) -> bool:
        return self.pid == os.getpid()

    def stop(self) -> None:
        """Have the loop end; on the loop."""
        if not self.ended.done():
            self.ended.set_result(None)

    def post(self, function: Callable[..., object], *args: object) -> bool:
        """Have the loop call a function; return whether it can."""
        try:
            self.loop.call_soon_threadsafe(function, *args, context=self.context)
        except RuntimeError:  # it is closed
            return False
        return True


class LoopThread:
    """Runs coroutines of one client in a background thread, started when it is first needed.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: _Running | None = None
        self._claims: dict[str, Claim] = {}
        self._early: deque[Callable[[], object]] = deque()
        self._waiting: set[Serve] = set()
        self._farewell: asyncio.Task[None] | None = None
        self._closed = False
        self._ended = False

    def __str__(self) -> str:
        return self._name

    # -------------------------------------------------------------------------------- calls

    def run(self, make: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run a coroutine on the loop and wait for its result.

        Raises:
            LocalProtocolError: The client is closed, the call comes from the loop itself, which
                would wait for ever, or from a forked child.
        """
        return self.run_serving(lambda _: make())

    def run_serving(self, make: Callable[[Serve], Coroutine[object, object, T]]) -> T:
        """Run a coroutine that may have calls made in this thread meanwhile, and wait for it.

        Raises:
            LocalProtocolError: As `run`.
        """
        return cast("T", self._serve(self._reach(), make, Deadline(None)))

    def _serve(
        self,
        running: _Running,
        make: Callable[[Serve], Coroutine[object, object, T]],
        deadline: Deadline,
    ) -> object:
        serve = Serve(running)
        self._wait(serve, make, deadline)
        return serve.result()

    def _wait(
        self,
        serve: Serve,
        make: Callable[[Serve], Coroutine[object, object, T]],
        deadline: Deadline,
    ) -> None:
        self._waiting.add(serve)
        try:
            # One of the two is seen: that the thread has ended, or, at its end, that this waits.
            if self._ended or not serve.start(make):
                raise _closed()
            serve.until_finished(deadline)
        except BaseException:
            serve.cancel()
            raise
        finally:
            self._waiting.discard(serve)

    def _reach(self) -> _Running:
        if self._closed:
            raise _closed()
        running = self._running or self._begun()
        if not running.is_here:
            raise lifecycle.forked()
        if get_ident() == running.thread.ident:
            raise lifecycle.in_own_thread()
        return running

    def check(self) -> None:
        """Refuse what a forked child or the loop itself may not do; what is not there yet starts.

        Raises:
            LocalProtocolError: As `run`.
        """
        self._reach()

    @property
    def is_used(self) -> bool:
        """Whether there is a thread that nobody has closed, in this process or in its parent."""
        return self._running is not None and not self._closed

    @property
    def is_started(self) -> bool:
        """Whether there is a thread that nobody has closed, in this process."""
        return self._running is not None and not self._closed and self._running.is_here

    @property
    def is_inside(self) -> bool:
        """Whether the caller runs on the loop."""
        return self._running is not None and get_ident() == self._running.thread.ident

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function, once there is one; does nothing when it is closed.

        Never raises and takes no lock: handlers of signals may call it, in forked children, too.
        """
        running = self._running
        if running is None:
            self._early.append(function)
            if self._running is not None:  # it was started meanwhile
                self._running.post(self._call_early)
        elif running.is_here:
            running.post(function)

    def _call_early(self) -> None:
        while self._early:
            self._early.popleft()()

    # -------------------------------------------------------------------------------- start

    def _begun(self) -> _Running:
        """Return what runs; start it if nobody else does."""
        while self._running is None:
            if self._closed:
                raise _closed()
            mine = Claim()
            claim = self._claims.setdefault("start", mine)
            if claim is mine:
                try:
                    self._start()
                finally:
                    if self._running is None:
                        self._claims.pop("start", None)
                    claim.end()
            elif claim.owner == mine.owner:
                raise LocalProtocolError(
                    "a handler of a signal made a blocking call while it interrupted the start of"
                    " the client; in handlers call wakeup()"
                )
            else:
                claim.wait()
        return self._running

    def _start(self) -> None:
        context = Context()
        loop = context.run(asyncio.new_event_loop)
        gate = queue.SimpleQueue[_Running | None]()
        thread = threading.Thread(target=self._run, args=(loop, gate), name=self._name, daemon=True)
        try:
            thread.start()
            self._running = _Running(loop, thread, os.getpid(), context, loop.create_future())
        except RuntimeError as error:
            loop.close()
            raise LocalProtocolError(f"the client's thread cannot start: {error}") from error
        finally:
            # An interrupt may come while the thread starts: then this one goes, and the next call
            # starts another.
            gate.put(self._running)
        running = self._running
        running.post(self._call_early)
        lifecycle.hook_process()
        if self._closed:
            running.post(running.stop)
            raise _closed()

    # ---------------------------------------------------------------------------------- end

    def close(
        self,
        make: Callable[[Serve], Coroutine[object, object, object]] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """End the thread; calls that still wait raise LocalProtocolError.

        Any number of threads may call it, and handlers of signals; it happens once. In a forked
        child it does nothing but forget the parent's client.

        Args:
            make: Makes what is to be done before.
            timeout_s: How long that may take; a little later this returns in any case.

        Raises:
            LocalProtocolError: It is called from the loop itself.
            Exception: Whatever the coroutine raises.
        """
        if self.is_started and self.is_inside:
            raise lifecycle.in_own_thread()
        mine = Claim()
        claim = self._claims.setdefault("close", mine)
        if claim is not mine:
            if claim.owner != mine.owner:  # else a handler of a signal interrupted `close`
                claim.wait(None if timeout_s is None else timeout_s + _GRACE_S)
                if not self._closed:
                    log.warning("%s is still being closed by another thread", self)
            return
        deadline = Deadline(None if timeout_s is None else (timeout_s + _GRACE_S) * 1000)
        try:
            self._close(make, deadline)
        finally:
            claim.end()

    def _close(
        self,
        make: Callable[[Serve], Coroutine[object, object, object]] | None,
        deadline: Deadline,
    ) -> None:
        serve: Serve | None = None
        running = self._running
        if make is not None and running is not None and self.is_started:
            self._cancel_interrupted()
            serve = Serve(running)
            try:
                self._wait(serve, make, deadline)
            except _TooLongError:
                log.warning("%s did not close in time; its connections are cut off", self)
                serve = None
            except (
                BaseException
            ):  # a handler of a signal raised: it can be closed again, or at exit
                self._claims.pop("close", None)
                raise
        try:
            if serve is not None:
                serve.result()
        finally:
            self._stop(deadline)

    def _stop(self, deadline: Deadline) -> None:
        self._closed = True
        running = self._running
        if running is not None and running.is_here:
            running.post(running.stop)
            if not self.join(deadline.left_s()):
                log.warning(
                    "%s goes on after close: something blocks it, event_listener maybe", self
                )

    def _cancel_interrupted(self) -> None:
        """End calls of this very thread: it is in the handler of a signal that interrupted them."""
        for serve in list(self._waiting):
            if serve.owner == get_ident():
                serve.cancel()

    def abandon(self, farewell: Farewell | None, timeout_s: float) -> None:
        """Have the thread end on its own, after a farewell; waits for nothing and takes no lock.

        Finalizers call it: in any thread, this one too, between any two bytecodes.

        Args:
            farewell: What to do before.
            timeout_s: How long the end of the process waits for it.
        """
        running, self._closed = self._running, True
        if running is None or not running.is_here:
            return
        lifecycle.begins_to_end(self, timeout_s)
        if not running.post(self._say, farewell, running):
            lifecycle.has_ended(self)

    def _say(self, farewell: Farewell | None, running: _Running) -> None:
        if farewell is None:
            running.stop()
            return

        def said(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                log.warning("%s was not closed, and could not end well: %s", self, task.exception())
            running.stop()

        self._farewell = running.loop.create_task(farewell())
        self._farewell.add_done_callback(said)

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        assert self._running is not None
        self._running.thread.join(timeout_s)
        return not self._running.thread.is_alive()

    def forked(self) -> object:
        """In a forked child: have no thread, and let no call wait for it."""
        self._early.clear()
        self._claims.clear()
        waiting = list(self._waiting)
        for serve in waiting:
            serve.abandon()
        return self._running and (self, waiting)

    def _run(
        self, loop: asyncio.AbstractEventLoop, gate: queue.SimpleQueue[_Running | None]
    ) -> None:
        running = gate.get()
        if running is None:
            loop.close()
            return
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(running.ended)
        finally:
            running.is_ending = True
            loop.run_until_complete(lifecycle.cancel_all(loop))
            self._closed = self._ended = True
            loop.close()
            while self._waiting:
                with suppress(KeyError):
                    self._waiting.pop().abandon()
            lifecycle.has_ended(self)


class Serve:
    """A coroutine on a loop, which has functions called in the thread that waits for it.

    Args:
        running: The loop; it runs in another thread.

    Attributes:
        owner: Which thread waits.
    """

    def __init__(self, running: _Running) -> None:
        self.owner = get_ident()
        self._running = running
        self._task: asyncio.Task[object] | None = None
        self._failure: BaseException | None = None
        self._is_cancelled = False
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()

    def start(self, make: Callable[[Serve], Coroutine[object, object, object]]) -> bool:
        """Start the coroutine, in the waiting thread; return whether there is a loop for it."""
        return self._running.post(self._start, make)

    def _start(self, make: Callable[[Serve], Coroutine[object, object, object]]) -> None:
        if self._is_cancelled or self._running.is_ending:
            self.abandon()
            return
        try:
            self._task = self._running.loop.create_task(make(self))
        except BaseException as error:  # noqa: BLE001  # raised where the result is waited for
            self._failure = error
            self.abandon()
        else:
            self._task.add_done_callback(lambda _: self.abandon())

    async def call(self, function: Callable[[], R]) -> R:
        """Call a function in the waiting thread and return what it returns."""
        done: asyncio.Future[object] = self._running.loop.create_future()
        self._calls.put((function, done))
        return cast("R", await done)

    def until_finished(self, deadline: Deadline) -> None:
        """Make calls until the coroutine is finished; in the waiting thread.

        Raises:
            _TooLongError: It is not, and the time is up.
        """
        while True:
            try:
                item = self._calls.get(timeout=deadline.left_s())
            except queue.Empty:
                raise _TooLongError from None
            if item is None:
                return
            self._make(*item)

    def _make(self, function: Callable[[], object], done: asyncio.Future[object]) -> None:
        if done.done():  # it was cancelled
            return
        try:
            result = function()
        except Exception as error:  # noqa: BLE001  # it is raised where it was asked for
            self._answer(_fail, done, error)
        else:
            self._answer(_succeed, done, result)

    def _answer(self, *call: object) -> None:
        if not self._running.is_here:  # the function has forked, and this is the child
            raise lifecycle.forked()
        function, *args = call
        self._running.post(cast("Callable[..., object]", function), *args)

    def cancel(self) -> None:
        """Have the coroutine end; in the waiting thread."""
        self._is_cancelled = True
        if self._running.is_here:
            self._running.post(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def abandon(self) -> None:
        """Let the waiting thread go on."""
        self._calls.put(None)

    def result(self) -> object:
        """Return what the coroutine returned, or raise what it raised."""
        if not self._running.is_here:
            raise lifecycle.forked()
        if self._failure is not None:
            raise self._failure
        if self._task is None or not self._task.done():
            raise _closed("the client was closed meanwhile")
        try:
            return self._task.result()
        except asyncio.CancelledError:  # only `close` cancels what is waited for
            raise _closed("the client was closed meanwhile") from None


def _closed(text: str = "the client is closed") -> LocalProtocolError:
    return LocalProtocolError(text)


def _succeed(done: asyncio.Future[object], result: object) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[object], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
