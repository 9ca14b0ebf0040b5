"""Run slow code of the application in a separate thread, so that the loop continues (L8)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from inspect import isawaitable, iscoroutine
from typing import Generic, TypeVar

from kohort.client.blocking.portal_call import fail, succeed

log = logging.getLogger("kohort.client")

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE_S = 10.0


async def run_in_thread(work: Callable[[], T], what: str) -> T:
    """Call a function in another thread and return its result.

    Unlike with the threads of an executor, neither closing the client nor the end of the process
    waits for a function that never returns.

    Args:
        work: The function.
        what: Name of the function, for the warning that it takes long.

    Raises:
        Exception: Any exception of the function.
    """
    done = _begun(work, "kohort-assignor")
    waited_s = 0.0
    while not (await asyncio.wait({done}, timeout=_PATIENCE_S))[0]:
        waited_s += _PATIENCE_S
        log.warning("%s has not returned for %.0f s; its group waits for it", what, waited_s)
    return done.result()


class SerialCall(Generic[T]):
    """Calls a function in another thread, as `run_in_thread` does, and never twice at a time.

    A function that never returns then costs one thread, however often it is called.

    Args:
        work: The function. If it returns an awaitable, that is awaited on the loop.
        name: Name of the thread.
    """

    def __init__(self, work: Callable[[], T | Awaitable[T]], name: str) -> None:
        self._work = work
        self._name = name
        self._running: asyncio.Future[T | Awaitable[T]] | None = None

    async def __call__(self) -> T:
        """Wait for a running call, if any, then call the function.

        Raises:
            Exception: Any exception of the function.
        """
        while self._running is not None and not self._running.done():
            await asyncio.wait({self._running})
        running = self._running = _begun(self._work, self._name)
        try:
            # Not cancelled with its waiter: it continues, and the next call has to wait for its
            # end.
            result = await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(_drop)
            raise
        return await result if isawaitable(result) else result


def _drop(done: asyncio.Future[T]) -> None:
    """Retrieve a result without a waiter: Python warns of errors that are never retrieved."""
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
    except RuntimeError:  # the process is exiting, and threads can no longer be started
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
        log.debug("the client was closed before a function that it called returned")
