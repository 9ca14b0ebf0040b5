"""What happens to unclosed clients when the process ends, and when it forks.

A forked child shares sockets and the selector of its parent's clients, and has none of their
threads. It must never touch them: not even by collecting them as garbage, which would take sockets
out of the selector that the parent waits on.
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
from typing import Protocol, TypeAlias, TypeVar
from weakref import WeakSet

from kohort.client.net.worded import in_words
from kohort.errors import LocalProtocolError

log = logging.getLogger("kohort.client")

T = TypeVar("T")

Farewell: TypeAlias = Callable[[], Coroutine[object, object, None]]
"""What a client does before it ends; refers to nothing that the application has."""


class Runs(Protocol):
    """What runs a client in a thread."""

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; return whether it has ended."""


class Owns(Protocol):
    """A client."""

    def end_at_exit(self) -> None:
        """Begin to end, without waiting; the process ends."""

    def forked(self) -> object:
        """In a forked child: give up what belongs to the parent, and return it."""


# Tasks that do not end when they are cancelled are left behind after this time.
_CANCEL_S = 5.0

_clients: WeakSet[Owns] = WeakSet()
# Threads that say goodbye, and until when (`time.monotonic`) the end of the process waits for them.
_ending: dict[Runs, float] = {}
_hooked: set[int] = set()
_ended: set[int] = set()  # processes that have ended their clients
_goodbyes: set[asyncio.Task[None]] = set()
_last_words: WeakSet[asyncio.Task[object]] = WeakSet()


def watch_client(client: Owns) -> None:
    """End a client when the process ends, and tell it when the process was forked."""
    _clients.add(client)


def hook_process() -> None:
    """Have this process end its clients; at their first use, for forked children have no hooks."""
    pid = os.getpid()
    if pid not in _hooked:
        _hooked.add(pid)
        _hook_multiprocessing()


def begins_to_end(thread: Runs, timeout_s: float) -> None:
    """Have the end of the process wait for a thread, so long at most."""
    _ending[thread] = time.monotonic() + timeout_s


def has_ended(thread: Runs) -> None:
    """Note that there is nothing to wait for any more."""
    _ending.pop(thread, None)


class ClientThread(threading.Thread):
    """A thread that runs the loop of a client."""


def end_daemon() -> None:
    """End this thread in silence if it is the application's and the process does not wait for it.

    The end of the process has closed its client, which is no mistake of the application's.

    Raises:
        SystemExit: It is a daemon thread, and the process ends. In a thread that prints nothing.
    """
    thread = threading.current_thread()
    if os.getpid() in _ended and thread.daemon and not isinstance(thread, ClientThread):
        raise SystemExit


def _end_all() -> None:
    """End unclosed clients. Neither a thread nor an executor can be started any more."""
    _ended.add(os.getpid())
    for client in list(_clients):
        client.end_at_exit()
    try:
        for thread, until in list(_ending.items()):
            if not thread.join(max(0.0, until - time.monotonic())):
                log.warning("%s was not closed, and could not end before the process did", thread)
            has_ended(thread)
    except BaseException:  # an interrupt from the keyboard
        names = ", ".join(map(str, _ending))
        log.warning("the end of the process does not wait for %s: unsent records are lost", names)
        raise


def _hook_multiprocessing() -> None:
    """A process of `multiprocessing` leaves without the hooks of `atexit`; it has its own."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing import util

        util.Finalize(None, _end_all, exitpriority=0)


def _after_fork() -> None:
    kept = [*(client.forked() for client in list(_clients)), *_ending]
    _ending.clear()
    if any(each is not None for each in kept):
        import ctypes

        # For ever, even while the interpreter ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def forked(what: str = "the client") -> LocalProtocolError:
    """Return the error of a call in a forked child."""
    return LocalProtocolError(
        f"{what} was used before this process was forked, and belongs to the parent process:"
        " make a client of its own in each process, after the fork"
    )


class Claim:
    """A step that one thread takes while others wait for it.

    Attributes:
        owner: Which thread takes it.
        is_over: Whether the step is over.
    """

    def __init__(self) -> None:
        self.owner = get_ident()
        self.is_over = False
        self._over: queue.SimpleQueue[None] = queue.SimpleQueue()

    def end(self) -> None:
        """Say that the step is over."""
        self.is_over = True
        self._over.put(None)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until it is over, though no longer than this."""
        with suppress(queue.Empty):
            self._over.get(timeout=timeout_s)
        self._over.put(None)  # for other waiters


def count_calls(thread: int, code: CodeType, owner: object) -> int:
    """Return how many calls of an object's method a thread is in, one within another.

    Whatever a call notes down about itself may be wrong: the handler of a signal may raise before
    it has noted that it is over.

    Args:
        thread: The thread.
        code: The method's, as this very class has it.
        owner: The object.
    """
    frame = sys._current_frames().get(thread)  # noqa: SLF001  # documented, and for such looks
    count = 0
    while frame is not None:
        count += frame.f_code is code and frame.f_locals["self"] is owner
        frame = frame.f_back
    return count


class Home:
    """The loop that a client belongs to: the one it was first used on.

    Args:
        what: What the client is called in errors.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()
        self.loop = asyncio.get_running_loop()

    @property
    def is_here(self) -> bool:
        """Whether this is still the process of the loop."""
        return self._pid == os.getpid()

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Have the loop call a function, unless it is closed or the parent's.

        Raises nothing and takes no lock: any thread may call it, finalizers and signal handlers.
        """
        if not self.is_here:
            return
        try:
            self.loop.call_soon_threadsafe(function, *args, context=Context())
        except RuntimeError:  # the loop's, unless a handler of a signal has raised it just now
            if not self.loop.is_closed():
                raise

    def end_after(self, farewell: Farewell) -> None:
        """Have the loop say goodbye; any thread may call it, and finalizers."""
        self.call_soon(self._say, farewell)

    def _say(self, farewell: Farewell) -> None:
        task = self.loop.create_task(farewell())
        _goodbyes.add(task)
        task.add_done_callback(_said)

    def check(self) -> None:
        """Refuse a call from somewhere else.

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
                " runs here: make a client of its own for each loop"
            )


def _said(task: asyncio.Task[None]) -> None:
    _goodbyes.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.warning(
            "a client that was not closed could not end cleanly: %s", in_words(task.exception())
        )


async def shared(task: asyncio.Task[T]) -> T:
    """Wait for a task that others wait for, too, and that goes on when this wait is cancelled.

    Raises:
        LocalProtocolError: The client was closed, which cancels the task. The waiting task is not
            cancelled, so it must not see a CancelledError.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if not task.cancelled() or (waiting is not None and waiting.cancelling()):
            raise
        raise LocalProtocolError("the client is closed") from None


def closes_connections() -> None:
    """Have `cancel_all` leave the present task alone, which would leave sockets open."""
    task: asyncio.Task[object] | None = asyncio.current_task()
    if task is not None:
        _last_words.add(task)


async def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks of a loop that ends, and wait for them, though not for long."""
    left = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in left:
        # one that was cancelled closes connections already, which must not be interrupted
        if not task.cancelling() and task not in _last_words:
            task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CANCEL_S)
    await asyncio.sleep(0)  # sockets close in the next turn
    for task in left:
        if task.done() and not task.cancelled():
            task.exception()  # no waiter is left
    await loop.shutdown_asyncgens()


def in_own_thread() -> LocalProtocolError:
    """Return the error of a blocking call from the thread that it would wait for."""
    name = threading.current_thread().name
    return LocalProtocolError(
        f"a blocking call was made from the client's own thread ({name}), in which event_listener,"
        " coroutines of listeners and callbacks of deliveries run: it would wait for itself. Have"
        " another thread make it; a producer's send is allowed"
    )


atexit.register(_end_all)
os.register_at_fork(after_in_child=_after_fork)
