"""Track which thread or task got the last poll, so that `close` commits only processed records.

`close` counts its records as processed only if it is called from that thread or task, or if that
has ended without an error (decision 0021). Nothing here refers to a consumer, or keeps a task
alive.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from threading import get_ident
from typing import TypeAlias
from weakref import ref

Undone: TypeAlias = Callable[[], str | None]
"""Returns why the records of the last poll may not be processed; None if they are."""

# The last polls of this context. A task that is created after a poll inherits them:
# `asyncio.wait_for` creates one for the `close` that it awaits (before Python 3.12).
_polls: ContextVar[tuple[object, ...]] = ContextVar("kohort_polls", default=())
_MOST_CONSUMERS = 8

_IS_HANDLED = "an exception is being handled"
_LEAVES_WITH = "an exception ends the with block"
_LEFT_OPEN = "the consumer was not closed"


def never_closed() -> str:
    """Return why no more records count as processed when a consumer was not closed."""
    return _LEFT_OPEN


def _handled() -> str:
    return _IS_HANDLED


def _ended_with() -> str:
    return _LEAVES_WITH


class LastThread:
    """The thread that got the records of the last poll.

    Threads read it without a lock, so it is set before records are returned and cleared before a
    poll waits.

    Attributes:
        ident: The thread; None when no records were returned since a poll started.
    """

    __slots__ = ("ident",)

    def __init__(self) -> None:
        self.ident: int | None = None

    def undone(self, kind: type[BaseException] | None = None, *, in_with: bool = False) -> Undone:
        """Return a function that says why the calling thread may not count all as processed.

        Args:
            kind: Type of the exception with which a `with` block ends.
            in_with: Whether a `with` block ends, so that `kind` tells all about exceptions.
        """
        return partial(self._undone, get_ident(), _failed(kind, in_with))

    def _undone(self, caller: int, failed: Undone | None) -> str | None:
        ident = self.ident
        if ident is None:  # an interrupted poll had asked for more records
            return None
        if failed is not None:
            return failed()
        if ident == caller or ident not in sys._current_frames():  # noqa: SLF001  # as in lifecycle
            return None
        return "another thread polled last and may still be working"


class LastTask:
    """The asyncio task that got the records of the last poll."""

    __slots__ = ("_mine", "_poll", "_poller")

    def __init__(self) -> None:
        self._poller: _Poller | None = None
        self._poll: object = None
        self._mine: object = None

    def begin(self) -> None:
        """Note that a poll starts: earlier records are processed."""
        self._poll = None

    def handed_out(self) -> None:
        """Note that the running task gets records."""
        task = asyncio.current_task()
        if self._poller is None or self._poller.task() is not task:
            self._poller = None if task is None else _Poller(task)
        others = tuple(each for each in _polls.get() if each is not self._mine)
        self._poll = self._mine = object()
        _polls.set((self._poll, *others[: _MOST_CONSUMERS - 1]))

    def undone(self, kind: type[BaseException] | None = None, *, in_with: bool = False) -> Undone:
        """Return the same for the running task; see `LastThread.undone`."""
        failed = _failed(kind, in_with)
        return failed or partial(self._undone, _polls.get())

    def _undone(self, polls: tuple[object, ...]) -> str | None:
        poller = self._poller
        if poller is None or self._poll is None or self._poll in polls:
            return None
        return poller.undone()


class _Poller:
    """A task that has polled.

    Attributes:
        task: The task.
    """

    __slots__ = ("_ended_well", "task")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = ref(task)
        self._ended_well: bool | None = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        # Not `exception()`: asyncio would no longer warn that it was never retrieved.
        failure = task._exception  # noqa: SLF001  # as above
        self._ended_well = failure is None and not task.cancelled()

    def undone(self) -> str | None:
        task = self.task()
        if task is not None and task.done():  # its waiter may continue before the callback runs
            self._ended(task)
        if self._ended_well:
            return None
        if self._ended_well is None:
            return "another task polled last and may still be working"
        return "the task that polled last was cancelled or ended with an exception"


def _failed(kind: type[BaseException] | None, in_with: bool) -> Undone | None:
    if in_with:
        return None if kind is None else _ended_with
    return None if sys.exc_info()[1] is None else _handled
