"""Let a blocking poll wait for records without asking the loop for them (decision 0019).

Asking wakes the loop's thread, which usually has nothing yet; waiting for news and passing records
on then takes further turns of the loop. A poll that waits here instead gets records in the same
turn of the loop in which they arrive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kohort.client.net.backoff import Deadline

# A poll asks the loop at least this often, which limits the delay of work in `ConsumerCore.ready`.
_LONGEST_S = 0.25


class PollWaiter:
    """Hands records from the loop to the application's thread.

    Both functions return True when there are only records, None when there is nothing, and False
    when there is other news, for which the poll has to ask.

    Args:
        set_aside: Sets aside records for a waiting poll; called on the loop.
        found: Returns what is available; called in the application's thread.
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

        Otherwise the poll has to ask: there is other news, or nothing arrived for a while. Records
        that were set aside for a poll that no longer waits are not lost: the poll gets them when it
        asks.
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
        """Check for news for a waiting poll; on the loop."""
        waiter = self._waiter
        # Once it is over, the application may be reading: then no record may count as read.
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
    """One waiting poll; ended on the loop."""

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
