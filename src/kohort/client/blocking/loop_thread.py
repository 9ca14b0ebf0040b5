"""A loop in a thread of its own: what stands behind the blocking faces.

No lock guards anything here. The handler of a signal runs in the main thread between any two
bytecodes, and may call in again: a lock that the interrupted call holds would never be released.
What happens once is decided by `dict.setdefault`, threads wait on `queue.SimpleQueue`, whose `put`
may interrupt its `get`.

A handler may raise as well, and then not even a `finally` is sure to be reached. So the start is
made in a thread of its own, which no handler interrupts; and a thread that waits for the close of
another one looks whether that is still in there.
"""

from __future__ import annotations

import _thread
import asyncio
import logging
import os
import queue
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from threading import get_ident
from typing import TypeVar, cast

from kohort.client.blocking import lifecycle
from kohort.client.blocking.lifecycle import Claim, Farewell
from kohort.client.blocking.serving import Running, Serve, TooLongError, closed
from kohort.client.net.backoff import Deadline
from kohort.client.net.worded import in_words
from kohort.errors import LocalProtocolError

log = logging.getLogger("kohort.client")

T = TypeVar("T")
R = TypeVar("R")

# How often a thread that waits for the `close` of another one looks whether that still runs.
_LOOK_S = 0.1

# How much longer than asked for closing may take: connections close after the group was left.
_GRACE_S = 2.0


class Gate:
    """Holds one thread up until another says how something ended.

    Opening it needs no memory, of which there may be none left.
    """

    __slots__ = ("_error", "_lock")

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def open(self, error: BaseException | None = None) -> None:
        """Let the thread go on; again has no effect."""
        self._error = error
        if self._lock.locked():
            self._lock.release()

    def wait(self) -> BaseException | None:
        """Return the error, once it is open."""
        self._lock.acquire()
        return self._error


class LoopThread:
    """Runs coroutines of one client in a background thread, started when it is first needed.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: Running | None = None
        self._starts: dict[str, Claim] = {}
        self._closes: dict[int, Claim] = {}
        self._gates: set[Gate] = set()
        self._early: deque[Callable[[], object]] = deque()
        self._waiting: set[Serve] = set()
        self._farewell: asyncio.Task[None] | None = None
        self._closing: Serve | None = None
        self._closed = False
        self._ended = False
        self._is_over = False  # whether `close` has done all it does

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
            SystemExit: The process ends, and does not wait for this daemon thread.
        """
        try:
            return cast("T", self._serve(self._reach(), make, Deadline(None)))
        except LocalProtocolError:
            lifecycle.end_daemon()
            raise

    def _serve(
        self,
        running: Running,
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
        try:
            self._waiting.add(serve)
            # One of the two is seen: that the thread has ended, or, at its end, that this waits.
            if self._ended or not serve.start(make):
                raise closed()
            serve.until_finished(deadline)
        except BaseException as error:
            serve.interrupt(error)
            raise
        finally:
            self._waiting.discard(serve)

    def _reach(self) -> Running:
        if self._closed:
            lifecycle.end_daemon()
            raise closed()
        running = self._running or self._begun()
        if not running.is_here:
            raise lifecycle.forked()
        if get_ident() == running.thread.ident:
            raise lifecycle.in_own_thread()
        return running

    def check(self) -> None:
        """Refuse what a forked child or the loop itself may not do; start the loop if it has not.

        Raises:
            LocalProtocolError: As `run`.
        """
        self._reach()

    @property
    def is_used(self) -> bool:
        """Whether there is an unclosed thread, in this process or in its parent."""
        return self._running is not None and not self._closed

    @property
    def is_started(self) -> bool:
        """Whether there is an unclosed thread in this process."""
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

    def _begun(self) -> Running:
        """Return what runs; have it started if it does not.

        Whatever ends this call, the start goes on, or has not begun: it holds up no other call.
        """
        while (running := self._running) is None:
            if self._closed:
                raise closed()
            gate = Gate()
            try:
                self._gates.add(gate)
                _begin(self._launch, gate)
                error = gate.wait()
            finally:
                self._gates.discard(gate)
            if error is not None:
                raise LocalProtocolError(f"the client's thread cannot start: {error}") from error
        return running

    def _launch(self, gate: Gate) -> None:
        """Start the thread unless another call does; in a thread that no signal interrupts."""
        try:
            while self._running is None and not self._closed:
                mine = Claim()
                claim = self._starts.setdefault("start", mine)
                if claim is not mine:
                    claim.wait()
                    continue
                try:
                    self._start()
                finally:
                    if self._running is None:
                        self._starts.clear()
                    claim.end()
        except BaseException as error:  # noqa: BLE001  # it is raised where the start is waited for
            gate.open(error)
        else:
            gate.open()

    def _start(self) -> None:
        context = Context()
        loop = context.run(asyncio.new_event_loop)
        gate = queue.SimpleQueue[Running]()
        thread = lifecycle.ClientThread(
            target=self._run, args=(loop, gate), name=self._name, daemon=True
        )
        running = Running(loop, thread, os.getpid(), context, loop.create_future())
        gate.put(running)
        try:
            thread.start()
        except BaseException:
            loop.close()
            raise
        self._running = running
        running.post(self._call_early)
        lifecycle.hook_process()
        if self._closed:  # else the closing thread sees what runs
            running.post(running.stop)

    # ---------------------------------------------------------------------------------- end

    def close(
        self,
        make: Callable[[Serve], Coroutine[object, object, object]] | None = None,
        timeout_s: float | None = None,
        *,
        goes_on: bool = False,
    ) -> None:
        """End the thread; calls that still wait raise LocalProtocolError.

        Any number of threads may call it, and handlers of signals; it happens once. In a forked
        child it does nothing but forget the parent's client. If the handler of a signal ends it by
        an exception, another call goes on where it was.

        Args:
            make: Makes what is to be done before.
            timeout_s: How long that may take; a little later this returns in any case.
            goes_on: Whether that goes on when the call is ended by an exception.

        Raises:
            LocalProtocolError: It is called from the loop itself.
            Exception: Whatever the coroutine raises.
        """
        if self.is_started and self.is_inside:
            raise lifecycle.in_own_thread()
        deadline = Deadline(None if timeout_s is None else (timeout_s + _GRACE_S) * 1000)
        mine = Claim()
        try:
            if self._has_turn(mine, deadline):
                self._close(make, deadline, goes_on)
        finally:
            mine.end()

    def _has_turn(self, mine: Claim, deadline: Deadline) -> bool:
        """Wait for other calls of `close`; return whether this one has to do it."""
        turn = 0
        while (claim := self._closes.setdefault(turn, mine)) is not mine:
            if self._is_over:
                return False
            closes = lifecycle.count_calls(claim.owner, LoopThread.close.__code__, self)
            if claim.is_over or closes <= (claim.owner == mine.owner):
                turn += 1  # an exception ended that call, maybe before it could say so
            elif claim.owner == mine.owner:  # a handler of a signal interrupted `close`
                return False
            elif deadline.over:
                log.warning("%s is still being closed by another thread", self)
                return False
            else:
                left_s = deadline.left_s()
                claim.wait(_LOOK_S if left_s is None else min(left_s, _LOOK_S))
        return not self._is_over

    def _close(
        self,
        make: Callable[[Serve], Coroutine[object, object, object]] | None,
        deadline: Deadline,
        goes_on: bool,
    ) -> None:
        serve: Serve | None = None
        running = self._running
        if make is not None and running is not None and self.is_started:
            self._cancel_interrupted()
            serve = self._closing or Serve(running, goes_on=goes_on)
            self._closing = serve if goes_on else None
            try:
                self._wait(serve, make, deadline)
            except TooLongError:
                log.warning("%s did not close in time; its connections are cut off", self)
                serve = None
        try:
            if serve is not None:
                serve.result()
        finally:
            self._stop(deadline)

    def _stop(self, deadline: Deadline) -> None:
        running = self._refuse()
        if running is not None:
            running.post(running.stop)
            if not self.join(deadline.left_s()):
                log.warning(
                    "%s still runs after close: something blocks it, perhaps event_listener", self
                )
        self._is_over = True

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
        running = self._refuse()
        if running is None:
            return
        lifecycle.begins_to_end(self, timeout_s)
        if self._closing is not None:
            running.post(self._closing.leave_alone)
        if not running.post(self._say, farewell, running):
            lifecycle.has_ended(self)

    def _say(self, farewell: Farewell | None, running: Running) -> None:
        if farewell is None:
            running.stop()
            return

        def said(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                log.warning(
                    "%s was not closed, and could not end cleanly: %s",
                    self,
                    in_words(task.exception()),
                )
            running.stop()

        self._farewell = running.loop.create_task(farewell())
        self._farewell.add_done_callback(said)

    def drop(self) -> None:
        """End an unused thread: a start that was interrupted may still be under way."""
        running = self._refuse()
        if running is not None:
            running.post(running.stop)

    def _refuse(self) -> Running | None:
        """Refuse calls from now on; return what runs, in this process."""
        self._closed = True  # before the check: the starter checks afterwards
        running = self._running
        return running if running is not None and running.is_here else None

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        assert self._running is not None
        self._running.thread.join(timeout_s)
        return not self._running.thread.is_alive()

    def forked(self) -> object:
        """In a forked child: have no thread, and let no call wait for it."""
        self._early.clear()
        self._starts.clear()
        self._closes.clear()
        for gate in list(self._gates):  # the thread that would answer is the parent's
            gate.open()
        waiting = list(self._waiting)
        for serve in waiting:
            serve.abandon()
        return self._running and (self, waiting)

    def _run(self, loop: asyncio.AbstractEventLoop, gate: queue.SimpleQueue[Running]) -> None:
        running = gate.get()
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


def _begin(function: Callable[[R], None], argument: R) -> None:
    """Call a function in a thread of its own.

    `threading.Thread.start` takes locks and keeps books, which an exception of a signal's handler
    leaves in disorder; this is one step, which is taken or not.

    Raises:
        LocalProtocolError: There cannot be another thread.
    """
    try:
        _thread.start_new_thread(function, (argument,))
    except RuntimeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # the handler of a signal did
        raise LocalProtocolError(f"the client's thread cannot start: {error}") from error
