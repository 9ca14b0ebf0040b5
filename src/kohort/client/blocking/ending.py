"""The close of a client on the caller's loop, which goes on when the wait for it is cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress

from kohort.client.blocking.lifecycle import shared
from kohort.client.net.backoff import Deadline
from kohort.client.net.worded import in_words
from kohort.errors import LocalProtocolError

log = logging.getLogger("kohort.client")


class Ending:
    """What closes a client, once; any number of tasks may wait for it, one after the other too.

    Args:
        what: What the client is called in the log.
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
        """Whether it was started."""
        return self._task is not None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self._task is not None and self._task.done()

    def refuse(self) -> None:
        """Keep a client that closes from beginning anything new.

        Raises:
            LocalProtocolError: It was started.
        """
        if self.is_begun:
            raise LocalProtocolError("the client was closed meanwhile")

    def limit(self) -> asyncio.Timeout:
        """Return what ends the patience of the close, as early as any waiting caller has asked."""
        self._limit = asyncio.timeout_at(self._until)
        return self._limit

    async def wait(
        self, make: Callable[[], Coroutine[object, object, None]], deadline: Deadline
    ) -> None:
        """Start it unless it was, and wait for it.

        Args:
            make: Makes what closes the client.
            deadline: What `limit` has to observe.

        Raises:
            BaseException: Whatever the close raises.
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
        except BaseException as error:  # noqa: BLE001  # a listener's: in a task it ends the loop
            self._leaves = error

    def _hurry(self, left_s: float | None) -> None:
        if left_s is None:
            return
        until = asyncio.get_running_loop().time() + left_s
        if self._until is None or until < self._until:
            self._until = until
            if self._limit is not None:
                with suppress(RuntimeError):  # that time is over, or what it limits
                    self._limit.reschedule(until)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self._waiting and not task.cancelled() and task.exception() is not None:
            log.warning(
                "%s could not be closed cleanly: %s", self._what, in_words(task.exception())
            )
