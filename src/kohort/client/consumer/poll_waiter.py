"""Where a blocking poll waits for records, without asking the loop for them (decision 0019).

Asking wakes the loop's thread, which mostly has nothing yet; that it then waits for news, and that
what it found is passed on, takes further turns of the loop. A poll that waits here instead is given
what the loop sets aside in the turn in which it comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kohort.client.net.backoff import Deadline

# A poll asks the loop at least so often: what only `ConsumerCore.ready` does is late by no more.
_LONGEST_S = 0.25


class Handover:
    """Hands records from the loop to the application's thread.

    Both functions return True when there are records and nothing else, None when there is nothing,
    and False when there is something else, for which the poll has to ask.

    Args:
        set_aside: Sets aside what there is for a poll that waits; called on the loop.
        found: Says what there is; called in the application's thread.
    """

    def __init__(
        self, set_aside: Callable[[], bool | None], found: Callable[[], bool | None]
    ) -> None:
        self._set_aside = set_aside
        self._found = found
        self._waiter: _Waiter | None = None
        self._is_offering = False

    def wait(self, deadline: Deadline) -> bool:
        """Wait in the application's thread; return whether records were set aside.

        Else the poll has to ask: something else is there, or nothing came for a while. What was set
        aside for a poll that no longer waits is not lost, it is there when the poll asks.
        """
        left_s = deadline.left_s()
        if left_s == 0:
            return False
        waiter = self._waiter = _Waiter()
        try:
            if self._found() is None:
                waiter.wait(_LONGEST_S if left_s is None else min(left_s, _LONGEST_S))
        finally:
            self._waiter = None
        return waiter.has_records

    def offer(self) -> None:
        """On the loop: there may be something for a poll that waits."""
        waiter = self._waiter
        # Once it is over the application may be reading: nothing may be taken for read then.
        if waiter is None or waiter.is_over or self._is_offering:
            return
        self._is_offering = True
        try:
            has_records = self._set_aside()
        finally:
            self._is_offering = False
        if has_records is not None:
            waiter.end(has_records)


class _Waiter:
    """One poll that waits; ended on the loop."""

    __slots__ = ("_ended", "has_records", "is_over")

    def __init__(self) -> None:
        self._ended = threading.Lock()
        self._ended.acquire()
        self.has_records = False
        self.is_over = False

    def wait(self, timeout_s: float) -> None:
        self._ended.acquire(timeout=timeout_s)

    def end(self, has_records: bool) -> None:
        self.is_over = True
        self.has_records = has_records
        self._ended.release()
