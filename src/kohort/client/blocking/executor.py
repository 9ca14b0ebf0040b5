"""Runs the application's slow code in a thread of its own, so that the loop goes on (L8)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from inspect import isawaitable, iscoroutine
from typing import Generic, TypeVar

from kohort.client.blocking.serving import fail, succeed

log = logging.getLogger("kohort.client")

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE_S = 10.0


async def aside(work: Callable[[], T], what: str) -> T:
    """Call a function in another thread and return what it returns.

    Neither closing the client nor the end of the process waits for a function that never returns,
    as they do for the threads of an executor.

    Args:
        work: The function.
        what: What it is, for the warning that it takes long.

    Raises:
        Exception: Whatever the function raises.
    """
    done = _begun(work, "kohort-assignor")
    waited_s = 0.0
    while not (await asyncio.wait({done}, timeout=_PATIENCE_S))[0]:
        waited_s += _PATIENCE_S
        log.warning("%s has not returned for %.0f s; its group waits for it", what, waited_s)
    return done.result()


class OneAside(Generic[T]):
    """Calls a function in another thread, as `aside` does, and never twice at a time.

    A function that never returns costs one thread then, however often it is asked.

    Args:
        work: The function. If what it returns is to be awaited, that is done on the loop.
        name: Of the thread.
    """

    def __init__(self, work: Callable[[], T | Awaitable[T]], name: str) -> None:
        self._work = work
        self._name = name
        self._running: asyncio.Future[T | Awaitable[T]] | None = None

    async def __call__(self) -> T:
        """Wait for the call that is under way, if there is one, and call the function.

        Raises:
            Exception: Whatever the function raises.
        """
        while self._running is not None and not self._running.done():
            await asyncio.wait({self._running})
        running = self._running = _begun(self._work, self._name)
        try:
            # Not cancelled with its waiter: it goes on, and the next one has to wait for its end.
            result = await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(_drop)
            raise
        return await result if isawaitable(result) else result


def _drop(done: asyncio.Future[T]) -> None:
    """Take a result whose waiter has gone: Python warns of errors that are never looked at."""
    if done.cancelled() or done.exception() is not None:
        return
    result = done.result()
    if iscoroutine(result):
        result.close()


def _begun(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  # the waiter must not wait forever
            _post(loop, fail, done, error)
        else:
            _post(loop, succeed, done, result)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:  # the process ends, and no thread can be started any more
        run()
    return done


def _post(
    loop: asyncio.AbstractEventLoop,
    tell: Callable[[asyncio.Future[T], R], None],
    done: asyncio.Future[T],
    value: R,
) -> None:
    try:
        loop.call_soon_threadsafe(tell, done, value)
    except RuntimeError:
        log.debug("the client was closed before what it had called returned")
