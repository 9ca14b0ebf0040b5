"""Waiting for a producer's memory: threads and tasks of the loop queue here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from kohort.client.net.backoff import Deadline
from kohort.client.producer._open_batches import OpenBatches

_ENOUGH_BYTES = 1_048_576


class BufferPool:
    """Makes callers wait while `buffer.memory` is full.

    Args:
        batches: Where records are added.
        buffer_memory: Its size in bytes.
        progress: Set briefly whenever memory may have become free; on the loop.
        wake: Makes the loop check the batches; callable from any thread.
    """

    def __init__(
        self,
        batches: OpenBatches,
        buffer_memory: int,
        progress: asyncio.Event,
        wake: Callable[[], object],
    ) -> None:
        self._batches = batches
        self._buffer_memory = buffer_memory
        self._progress = progress
        self._wake = wake
        self._free = threading.Condition()  # re-entrant: a signal handler may call `send`
        self._threads = 0
        self._tasks = 0

    @property
    def is_wanted(self) -> bool:
        """Whether a thread or task waits."""
        return self._threads + self._tasks > 0

    def _wanted(self, size: int) -> int:
        # A thread that waited can then add several records instead of waiting again for each.
        return max(size, min(_ENOUGH_BYTES, self._buffer_memory // 4))

    def wait(self, size: int, deadline: Deadline) -> bool:
        """Block this thread until `size` bytes are free; return whether they are."""
        wanted = self._wanted(size)
        with self._free:
            # Set before the first check, or a release in between would go unnoticed.
            self._threads += 1
            self._wake()
            try:
                return self._free.wait_for(
                    lambda: self._batches.has_room(wanted), deadline.left_s()
                )
            finally:
                self._threads -= 1

    async def wait_on_loop(self, size: int, deadline: Deadline) -> bool:
        """Wait until `size` bytes are free; return whether they are."""
        wanted = self._wanted(size)
        self._tasks += 1
        self._wake()
        try:
            async with asyncio.timeout(deadline.left_s()):
                while not self._batches.has_room(wanted):
                    await self._progress.wait()
        except TimeoutError:
            return False
        finally:
            self._tasks -= 1
        return True

    def tell(self) -> None:
        """Make waiting threads check for free memory."""
        if self._threads:
            with self._free:
                self._free.notify_all()
