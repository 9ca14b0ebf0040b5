"""Runs a broker on its own thread, which ends even if a signal interrupts the starting thread.

A signal handler runs in the main thread between any two bytecodes, and may raise. Therefore the
broker's thread is started from a helper thread, which no handler interrupts; `dict.setdefault`
decides atomically whether there will be a thread; and no locks are used.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress

from kohort.errors import LocalProtocolError

_NAME = "kohort-broker"


class Background:
    """Starts, serves and stops on an event loop in a thread; each object can run once.

    Args:
        start: Starts the service; cancelled if it is to end before it has started.
        stop: Stops the service.
    """

    def __init__(
        self,
        start: Callable[[], Coroutine[object, object, None]],
        stop: Callable[[], Coroutine[object, object, None]],
    ) -> None:
        self._start = start
        self._stop = stop
        self._fate: dict[str, bool] = {}  # whether there is a thread; set once, by `setdefault`
        self._told = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ready, self._over = _Moment(), _Moment()
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether the thread is in this process; a forked child has only the object."""
        return self._pid == os.getpid()

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended, or will not start."""
        return self._over.has_come or self._fate.get("runs") is False

    @property
    def is_inside(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def begin(self) -> None:
        """Start the service, and wait until it serves.

        Raises:
            LocalProtocolError: It was told to end in the meantime.
            BaseException: Any error of the start.
        """
        _thread.start_new_thread(self._launch, ())
        error = self._ready.wait()
        if error is not None:
            raise error

    def end(self) -> None:
        """Tell the service to end, and wait until it has; in a forked child this does nothing.

        Raises:
            LocalProtocolError: Called in the service's own thread; it ends anyway.
        """
        if not self.is_here:
            return
        self.tell()
        if self.is_inside:
            raise LocalProtocolError("a broker's own thread cannot wait for its own end")
        if not self.is_over:
            self._over.wait()
        if self._thread is not None:
            self._thread.join()

    def tell(self) -> None:
        """Tell the service to end, from any thread at any moment; does not wait."""
        if not self.is_here:
            return
        self._told = True  # set before the loop is checked: the thread checks this afterwards
        if self._fate.setdefault("runs", False) and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._cut_short)

    # ------------------------------------------------------------------------- in its threads

    def _launch(self) -> None:
        """Start the thread, unless the service is to end already."""
        if not self._fate.setdefault("runs", True):
            self._ready.come(_stopped_early())
            return
        try:
            thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
            self._thread = thread
            thread.start()
        except BaseException as error:  # noqa: BLE001  # passed to the waiting thread
            self._thread = None
            self._ready.come(error)
            self._over.come()

    def _run(self) -> None:
        try:
            asyncio.run(self._life())
        except BaseException as error:
            if self._ready.has_come:
                raise
            self._ready.come(error)
        finally:
            self._over.come()

    async def _life(self) -> None:
        self._stopping = asyncio.Event()
        self._starting = asyncio.ensure_future(self._start())
        self._loop = asyncio.get_running_loop()
        if self._told:
            self._cut_short()
        try:
            await self._starting
        except asyncio.CancelledError:
            raise _stopped_early() from None
        self._ready.come()
        await self._stopping.wait()
        await self._stop()

    def _cut_short(self) -> None:
        self._starting.cancel()
        self._stopping.set()


def _stopped_early() -> LocalProtocolError:
    return LocalProtocolError("this broker was stopped while it was starting")


class _Moment:
    """An event that occurs once, or fails; any number of threads can wait for it."""

    def __init__(self) -> None:
        self.has_come = False
        self._error: BaseException | None = None
        self._gates: set[queue.SimpleQueue[None]] = set()

    def come(self, error: BaseException | None = None) -> None:
        """Set the event, or its `error`; only called in the service's threads."""
        self._error = error
        self.has_come = True
        for gate in tuple(self._gates):
            gate.put(None)

    def wait(self) -> BaseException | None:
        """Wait for the event; return its error, if any."""
        gate = queue.SimpleQueue[None]()
        try:
            self._gates.add(gate)
            if not self.has_come:  # else a gate added too late would never open
                gate.get()
        finally:
            self._gates.discard(gate)
        return self._error
