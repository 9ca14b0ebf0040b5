"""Closing a client on the caller's loop, which continues when waiting for it is cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress

from kohort.client.blocking.lifecycle import shared
from kohort.client.net.backoff import Deadline
from kohort.errors import LocalProtocolError, error_text

log = logging.getLogger("kohort.client")


class CloseTask:
    """Closes a client once; any number of tasks may wait for it, also one after another.

    Args:
        what: Name of the client in the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._task: asyncio.Task[None] | None = None
        self._waiting = 0
        self._until: float | None = None
        self._limit: asyncio.Timeout | None = None
        self._leaves: BaseException | None = None

    @property
    def is_begun(self) -> bool:
        """Whether closing has started."""
        return self._task is not None

    @property
    def is_over(self) -> bool:
        """Whether closing is done."""
        return self._task is not None and self._task.done()

    def refuse(self) -> None:
        """Refuse new work while a client closes.

        Raises:
            LocalProtocolError: Closing has started.
        """
        if self.is_begun:
            raise LocalProtocolError("the client was closed meanwhile")

    def limit(self) -> asyncio.Timeout:
        """Return the timeout of the close: the earliest that any waiting caller has asked for."""
        self._limit = asyncio.timeout_at(self._until)
        return self._limit

    async def wait(
        self, make: Callable[[], Coroutine[object, object, None]], deadline: Deadline
    ) -> None:
        """Start closing if it has not started, and wait for it.

        Args:
            make: Makes the coroutine that closes the client.
            deadline: The deadline for `limit`.

        Raises:
            BaseException: Any exception from closing.
        """
        self._hurry(deadline.left_s())
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._close(make))
            self._task.add_done_callback(self._ended)
        self._waiting += 1
        try:
            await shared(self._task)
        finally:
            self._waiting -= 1
        leaves, self._leaves = self._leaves, None
        if leaves is not None:
            raise leaves

    async def _close(self, make: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await make()
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:  # noqa: BLE001  # from a listener: in a task it would end the loop
            self._leaves = error

    def _hurry(self, left_s: float | None) -> None:
        if left_s is None:
            return
        until = asyncio.get_running_loop().time() + left_s
        if self._until is None or until < self._until:
            self._until = until
            if self._limit is not None:
                with suppress(RuntimeError):  # the timeout has expired, or its block has ended
                    self._limit.reschedule(until)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self._waiting and not task.cancelled() and task.exception() is not None:
            log.warning(
                "%s could not be closed cleanly: %s", self._what, error_text(task.exception())
            )
