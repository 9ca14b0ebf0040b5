"""Handle unclosed clients when the process exits or forks.

A forked child shares the sockets and selector of its parent's clients, but has none of their
threads. It must never touch them, not even by garbage collection, which would remove sockets from
the selector that the parent waits on.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from threading import get_ident
from types import CodeType
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from kohort.errors import LocalProtocolError, error_text

log = logging.getLogger("kohort.client")

C = TypeVar("C")
T = TypeVar("T")

Shutdown: TypeAlias = Callable[[], Coroutine[object, object, None]]
"""The last work of a client; it refers to no object of the application."""


class Joinable(Protocol):
    """Runs a client in a thread."""

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; return whether it has."""


# Tasks that ignore cancellation are abandoned after this time, in seconds.
_CANCEL_S = 5.0

# What each client does at the end of the process, and in a forked child: functions of the client,
# since weak references to methods print errors while the interpreter shuts down.
_clients: WeakKeyDictionary[Any, tuple[Callable[[Any], None], Callable[[Any], object]]] = (
    WeakKeyDictionary()
)
# Threads that are shutting down, and until when (`time.monotonic`) the process waits for them.
_ending: dict[Joinable, float] = {}
_hooked: set[int] = set()
_ended: set[int] = set()  # ids of processes that have shut down their clients
_shutdowns: set[asyncio.Task[None]] = set()
_closing_connections: WeakSet[asyncio.Task[object]] = WeakSet()


def watch_client(
    client: C, end_at_exit: Callable[[C], None], forked: Callable[[C], object]
) -> None:
    """Shut a client down when the process exits, and notify it of a fork.

    Args:
        client: The client, which is not kept alive.
        end_at_exit: Starts the shutdown of a client without waiting.
        forked: In a forked child, drops and returns what a client has that belongs to the parent.
    """
    _clients[client] = end_at_exit, forked


def hook_process() -> None:
    """Register exit hooks, at the first use of a client: forked children do not inherit them."""
    pid = os.getpid()
    if pid not in _hooked:
        _hooked.add(pid)
        _hook_multiprocessing()


def join_at_exit(thread: Joinable, timeout_s: float) -> None:
    """Make the end of the process wait for a thread, at most for this time."""
    _ending[thread] = time.monotonic() + timeout_s


def forget_thread(thread: Joinable) -> None:
    """Note that the thread has ended."""
    _ending.pop(thread, None)


class ClientThread(threading.Thread):
    """A thread that runs the loop of a client."""


def end_daemon() -> None:
    """End this daemon thread of the application silently if the process is exiting.

    The end of the process has closed its client, which is not a mistake of the application.

    Raises:
        SystemExit: It is a daemon thread, and the process is exiting. In a thread this prints
            nothing.
    """
    thread = threading.current_thread()
    if os.getpid() in _ended and thread.daemon and not isinstance(thread, ClientThread):
        raise SystemExit


def _end_all() -> None:
    """Shut down unclosed clients. Threads and executors can no longer be started."""
    _ended.add(os.getpid())
    for client, (end_at_exit, _) in list(_clients.items()):
        end_at_exit(client)
    try:
        for thread, until in list(_ending.items()):
            if not thread.join(max(0.0, until - time.monotonic())):
                log.warning(
                    "%s was not closed, and could not finish before the process ended", thread
                )
            forget_thread(thread)
    except BaseException:  # KeyboardInterrupt
        names = ", ".join(map(str, _ending))
        log.warning("the end of the process does not wait for %s: unsent records are lost", names)
        raise


def _hook_multiprocessing() -> None:
    """Register an exit hook of `multiprocessing`, whose processes do not run `atexit` hooks."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing import util

        util.Finalize(None, _end_all, exitpriority=0)


def _after_fork() -> None:
    kept = [*(forked(client) for client, (_, forked) in list(_clients.items())), *_ending]
    _ending.clear()
    if any(each is not None for each in kept):
        import ctypes

        # Forever, even during interpreter shutdown.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def forked(what: str = "the client") -> LocalProtocolError:
    """Return the error of a call in a forked child."""
    return LocalProtocolError(
        f"{what} was used before this process was forked, and belongs to the parent process:"
        " create a separate client in each process, after the fork"
    )


class Claim:
    """A step that one thread executes while others wait for it.

    Attributes:
        owner: The thread that executes it.
        is_over: Whether the step is done.
    """

    def __init__(self) -> None:
        self.owner = get_ident()
        self.is_over = False
        self._over: queue.SimpleQueue[None] = queue.SimpleQueue()

    def end(self) -> None:
        """Mark the step as done."""
        self.is_over = True
        self._over.put(None)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the step is done, at most for this time."""
        with suppress(queue.Empty):
            self._over.get(timeout=timeout_s)
        self._over.put(None)  # for other waiters


def count_calls(thread: int, code: CodeType, owner: object) -> int:
    """Return how many nested calls of an object's method a thread is executing.

    A counter kept by the calls could be wrong: a signal handler may raise before a call has
    decremented it.

    Args:
        thread: The thread.
        code: Code object of the method, in exactly this class.
        owner: The object.
    """
    frame = sys._current_frames().get(thread)  # noqa: SLF001  # documented, and meant for this
    count = 0
    while frame is not None:
        count += frame.f_code is code and frame.f_locals["self"] is owner
        frame = frame.f_back
    return count


class BoundLoop:
    """The loop that a client belongs to: the loop it was first used on.

    Args:
        what: Name of the client in errors.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()
        self.loop = asyncio.get_running_loop()

    @property
    def is_here(self) -> bool:
        """Whether this is the process of the loop."""
        return self._pid == os.getpid()

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Make the loop call a function, unless it is closed or the parent's.

        Raises nothing and takes no lock: any thread, finalizer or signal handler may call it.
        """
        if not self.is_here:
            return
        try:
            self.loop.call_soon_threadsafe(function, *args, context=Context())
        except RuntimeError:  # from the loop, unless a signal handler has just raised it
            if not self.loop.is_closed():
                raise

    def shut_down(self, shutdown: Shutdown) -> None:
        """Have the loop shut its client down; any thread may call it, and finalizers."""
        self.call_soon(self._start, shutdown)

    def _start(self, shutdown: Shutdown) -> None:
        task = self.loop.create_task(shutdown())
        _shutdowns.add(task)
        task.add_done_callback(_is_shut_down)

    def check(self) -> None:
        """Refuse a call from another loop or process.

        Raises:
            LocalProtocolError: Another loop runs here, or this is a forked child.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self.loop and self.is_here:
            return
        if not self.is_here:
            raise forked(f"the {self._what}")
        if running is not None:
            raise LocalProtocolError(
                f"the {self._what} belongs to the event loop it was first used on, and another one"
                " runs here: create a separate client for each loop"
            )


def _is_shut_down(task: asyncio.Task[None]) -> None:
    _shutdowns.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.warning(
            "a client that was not closed could not shut down cleanly: %s",
            error_text(task.exception()),
        )


async def shared(task: asyncio.Task[T]) -> T:
    """Wait for a shared task, which continues when this wait is cancelled.

    Raises:
        LocalProtocolError: The client was closed, which cancels the shared task. The waiting task
            is not cancelled, so it must not see a CancelledError.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if not task.cancelled() or (waiting is not None and waiting.cancelling()):
            raise
        raise LocalProtocolError("the client is closed") from None


def closes_connections() -> None:
    """Exempt the current task from `cancel_all`, because cancelling it would leave sockets open."""
    task: asyncio.Task[object] | None = asyncio.current_task()
    if task is not None:
        _closing_connections.add(task)


async def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks of a loop that ends, and wait briefly for them."""
    left = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in left:
        # a cancelled task is already closing connections, and must not be interrupted
        if not task.cancelling() and task not in _closing_connections:
            task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CANCEL_S)
    await asyncio.sleep(0)  # sockets close in the next turn of the loop
    for task in left:
        if task.done() and not task.cancelled():
            task.exception()  # no waiter is left
    await loop.shutdown_asyncgens()


def in_own_thread() -> LocalProtocolError:
    """Return the error of a blocking call from the thread that it would wait for."""
    name = threading.current_thread().name
    return LocalProtocolError(
        f"a blocking call was made from the client's own thread ({name}), in which event_listener,"
        " coroutines of listeners and delivery callbacks run: it would wait for itself. Make it in"
        " another thread; a producer's send is allowed"
    )


atexit.register(_end_all)
os.register_at_fork(after_in_child=_after_fork)
