"""An event loop in its own thread, behind the blocking clients.

There are no locks here. A signal handler runs in the main thread between any two bytecodes, and may
call this code again: a lock held by the interrupted call would never be released. `dict.setdefault`
makes things happen only once, and threads wait on `queue.SimpleQueue`, whose `put` may interrupt
its `get`.

A handler may also raise, and then not even a `finally` block is sure to run. So the start runs in a
separate thread, which no handler interrupts, and a thread that waits for another thread's `close`
checks whether that is still running.
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
from kohort.client.blocking.lifecycle import Claim, Shutdown
from kohort.client.blocking.portal_call import PortalCall, Running, TooLongError, closed
from kohort.client.net.backoff import Deadline
from kohort.errors import LocalProtocolError, error_text

log = logging.getLogger("kohort.client")

T = TypeVar("T")
R = TypeVar("R")

# How often a thread that waits for another's `close` checks whether it still runs, in seconds.
_LOOK_S = 0.1

# Extra time for closing, in seconds: connections close after the group was left.
_GRACE_S = 2.0


class Gate:
    """Blocks one thread until another reports an outcome.

    Opening it allocates no memory, because none may be left.
    """

    __slots__ = ("_error", "_lock")

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def open(self, error: BaseException | None = None) -> None:
        """Let the thread continue; opening twice has no effect."""
        self._error = error
        if self._lock.locked():
            self._lock.release()

    def wait(self) -> BaseException | None:
        """Wait until it is open; return the error."""
        self._lock.acquire()
        return self._error


class LoopThread:
    """Runs coroutines of one client in a background thread, which starts when first needed.

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
        self._waiting: set[PortalCall] = set()
        self._shutdown: asyncio.Task[None] | None = None
        self._closing: PortalCall | None = None
        self._closed = False
        self._ended = False
        self._is_over = False  # whether `close` is done

    def __str__(self) -> str:
        return self._name

    # -------------------------------------------------------------------------------- calls

    def run(self, make: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run a coroutine on the loop and wait for its result.

        Raises:
            LocalProtocolError: The client is closed, or the call comes from the loop itself, which
                would wait forever, or from a forked child.
        """
        return self.run_portal_call(lambda _: make())

    def run_portal_call(self, make: Callable[[PortalCall], Coroutine[object, object, T]]) -> T:
        """Run a coroutine that may request calls in this thread meanwhile, and wait for it.

        Raises:
            LocalProtocolError: See `run`.
            SystemExit: The process is exiting, and this is a daemon thread.
        """
        try:
            return cast("T", self._call(self._reach(), make, Deadline(None)))
        except LocalProtocolError:
            lifecycle.end_daemon()
            raise

    def _call(
        self,
        running: Running,
        make: Callable[[PortalCall], Coroutine[object, object, T]],
        deadline: Deadline,
    ) -> object:
        call = PortalCall(running)
        self._wait(call, make, deadline)
        return call.result()

    def _wait(
        self,
        call: PortalCall,
        make: Callable[[PortalCall], Coroutine[object, object, T]],
        deadline: Deadline,
    ) -> None:
        try:
            self._waiting.add(call)
            # Either this sees that the thread has ended, or the thread, at its end, sees this
            # waiter.
            if self._ended or not call.start(make):
                raise closed()
            call.until_finished(deadline)
        except BaseException as error:
            call.interrupt(error)
            raise
        finally:
            self._waiting.discard(call)

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
        """Refuse calls from a forked child or the loop itself; start the loop if necessary.

        Raises:
            LocalProtocolError: See `run`.
        """
        self._reach()

    @property
    def is_used(self) -> bool:
        """Whether there is an unclosed thread, in this process or its parent."""
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
        """Make the loop call a function once the loop exists; does nothing when it is closed.

        Never raises and takes no lock: signal handlers may call it, also in forked children.
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
        """Return the running loop; start it if necessary.

        Whatever interrupts this call, the start continues or has not begun, and blocks no other
        call.
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
        """Start the thread unless another call does; runs in a thread that no signal interrupts."""
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
        except BaseException as error:  # noqa: BLE001  # raised by the call that waits for the start
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
        if self._closed:  # otherwise the closing thread sees the running loop
            running.post(running.stop)

    # ---------------------------------------------------------------------------------- end

    def close(
        self,
        make: Callable[[PortalCall], Coroutine[object, object, object]] | None = None,
        timeout_s: float | None = None,
        *,
        goes_on: bool = False,
    ) -> None:
        """End the thread; pending calls raise LocalProtocolError.

        Any number of threads and signal handlers may call it; it closes once. In a forked child it
        only drops the parent's client. If an exception of a signal handler interrupts it, another
        call resumes it.

        Args:
            make: Makes the coroutine to run first.
            timeout_s: Maximum time for it; soon after, this returns in any case.
            goes_on: Whether it continues when an exception ends the call.

        Raises:
            LocalProtocolError: The call comes from the loop itself.
            Exception: Any exception of the coroutine.
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
        """Wait for other calls of `close`; return whether this call has to close."""
        turn = 0
        while (claim := self._closes.setdefault(turn, mine)) is not mine:
            if self._is_over:
                return False
            closes = lifecycle.count_calls(claim.owner, LoopThread.close.__code__, self)
            if claim.is_over or closes <= (claim.owner == mine.owner):
                turn += 1  # an exception ended that call, maybe before it could report its end
            elif claim.owner == mine.owner:  # a signal handler interrupted `close`
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
        make: Callable[[PortalCall], Coroutine[object, object, object]] | None,
        deadline: Deadline,
        goes_on: bool,
    ) -> None:
        call: PortalCall | None = None
        running = self._running
        if make is not None and running is not None and self.is_started:
            self._cancel_interrupted()
            call = self._closing or PortalCall(running, goes_on=goes_on)
            self._closing = call if goes_on else None
            try:
                self._wait(call, make, deadline)
            except TooLongError:
                log.warning("%s did not close in time; its connections are cut off", self)
                call = None
        try:
            if call is not None:
                call.result()
        finally:
            self._stop(deadline)

    def _stop(self, deadline: Deadline) -> None:
        running = self._refuse()
        if running is not None:
            running.post(running.stop)
            if not self.join(deadline.left_s()):
                log.warning(
                    "%s is still running after close: something blocks it, perhaps event_listener",
                    self,
                )
        self._is_over = True

    def _cancel_interrupted(self) -> None:
        """End interrupted calls of this thread, when called from a signal handler."""
        for call in list(self._waiting):
            if call.owner == get_ident():
                call.cancel()

    def abandon(self, shutdown: Shutdown | None, timeout_s: float) -> None:
        """Let the thread end on its own after its last work, without waiting or taking a lock.

        Finalizers call it in any thread, including this one, between any two bytecodes.

        Args:
            shutdown: The last work.
            timeout_s: How long the end of the process waits for it, in seconds.
        """
        running = self._refuse()
        if running is None:
            return
        lifecycle.join_at_exit(self, timeout_s)
        if self._closing is not None:
            running.post(self._closing.leave_alone)
        if not running.post(self._shut_down, shutdown, running):
            lifecycle.forget_thread(self)

    def _shut_down(self, shutdown: Shutdown | None, running: Running) -> None:
        if shutdown is None:
            running.stop()
            return

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                log.warning(
                    "%s was not closed, and could not shut down cleanly: %s",
                    self,
                    error_text(task.exception()),
                )
            running.stop()

        self._shutdown = running.loop.create_task(shutdown())
        self._shutdown.add_done_callback(ended)

    def drop(self) -> None:
        """End an unused thread: an interrupted start may still be in progress."""
        running = self._refuse()
        if running is not None:
            running.post(running.stop)

    def _refuse(self) -> Running | None:
        """Refuse calls from now on; return the running loop of this process."""
        self._closed = True  # set before the check: the starting thread checks this afterwards
        running = self._running
        return running if running is not None and running.is_here else None

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the thread to end; return whether it has."""
        assert self._running is not None
        self._running.thread.join(timeout_s)
        return not self._running.thread.is_alive()

    def forked(self) -> object:
        """In a forked child: drop the thread, and let no call wait for it."""
        self._early.clear()
        self._starts.clear()
        self._closes.clear()
        for gate in list(self._gates):  # the thread that would answer belongs to the parent
            gate.open()
        waiting = list(self._waiting)
        for call in waiting:
            call.abandon()
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
            lifecycle.forget_thread(self)


def _begin(function: Callable[[R], None], argument: R) -> None:
    """Call a function in a thread of its own.

    `threading.Thread.start` takes locks and changes global state; an exception raised by a signal
    handler would leave both inconsistent. This is a single step that happens or does not.

    Raises:
        LocalProtocolError: No more threads can be started.
    """
    try:
        _thread.start_new_thread(function, (argument,))
    except RuntimeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # raised by a signal handler
        raise LocalProtocolError(f"the client's thread cannot start: {error}") from error
