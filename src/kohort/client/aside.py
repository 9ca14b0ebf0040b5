"""Runs the application's slow code in a thread of its own, so that the loop goes on (L8)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from kohort.client.serving import fail, succeed

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
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  # who waits must not wait for ever
            _post(loop, fail, done, error)
        else:
            _post(loop, succeed, done, result)

    threading.Thread(target=run, name="kohort-assignor", daemon=True).start()
    waited_s = 0.0
    while not (await asyncio.wait({done}, timeout=_PATIENCE_S))[0]:
        waited_s += _PATIENCE_S
        log.warning("%s has not returned for %.0f s; its group waits for it", what, waited_s)
    return done.result()


def _post(
    loop: asyncio.AbstractEventLoop,
    tell: Callable[[asyncio.Future[T], R], None],
    done: asyncio.Future[T],
    value: R,
) -> None:
    try:
        loop.call_soon_threadsafe(tell, done, value)
    except RuntimeError:
        log.debug("the client was closed before its assignor returned")
