"""A thread of its own for a broker, which ends whatever interrupts the one that started it.

The handler of a signal runs in the main thread between any two bytecodes, and may raise. So the
start is made in a thread that no handler interrupts, whether there is one at all is decided by
`dict.setdefault`, and no lock guards anything here.
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
    """Runs something that starts, serves and stops on a loop; each object for one time.

    Args:
        start: Starts it; cancelled if it shall end meanwhile.
        stop: Stops it.
    """

    def __init__(
        self,
        start: Callable[[], Coroutine[object, object, None]],
        stop: Callable[[], Coroutine[object, object, None]],
    ) -> None:
        self._start = start
        self._stop = stop
        self._fate: dict[str, bool] = {}  # whether there is a thread, once that is decided
        self._told = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ready, self._over = _Moment(), _Moment()
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it runs in this process; a forked child has the object and not the thread."""
        return self._pid == os.getpid()

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended, or there will be none."""
        return self._over.has_come or self._fate.get("runs") is False

    @property
    def is_inside(self) -> bool:
        """Whether the caller runs in the thread."""
        return threading.current_thread() is self._thread

    def begin(self) -> None:
        """Start it, and wait until it serves.

        Raises:
            LocalProtocolError: It was told to end meanwhile.
            BaseException: Whatever the start raises.
        """
        _thread.start_new_thread(self._launch, ())
        error = self._ready.wait()
        if error is not None:
            raise error

    def end(self) -> None:
        """Tell it to end, and wait until it has; a forked child leaves it to its parent.

        Raises:
            LocalProtocolError: It is called in the thread itself, which ends all the same.
        """
        if not self.is_here:
            return
        self.tell()
        if self.is_inside:
            raise LocalProtocolError("a broker's own thread cannot wait for its end")
        if not self.is_over:
            self._over.wait()
        if self._thread is not None:
            self._thread.join()

    def tell(self) -> None:
        """Tell it to end, from any thread and at any moment; waits for nothing."""
        if not self.is_here:
            return
        self._told = True  # before the look at the loop: the thread looks here afterwards
        if self._fate.setdefault("runs", False) and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._cut_short)

    # ------------------------------------------------------------------------------- its threads

    def _launch(self) -> None:
        """Start the thread, unless it shall end already."""
        if not self._fate.setdefault("runs", True):
            self._ready.come(_stopped_early())
            return
        try:
            thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
            self._thread = thread
            thread.start()
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
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
    return LocalProtocolError("this broker was stopped while it started")


class _Moment:
    """Something that happens once; any number of threads wait for it."""

    def __init__(self) -> None:
        self.has_come = False
        self._error: BaseException | None = None
        self._gates: set[queue.SimpleQueue[None]] = set()

    def come(self, error: BaseException | None = None) -> None:
        """It has happened, or `error` has instead; only the broker's threads say so."""
        self._error = error
        self.has_come = True
        for gate in tuple(self._gates):
            gate.put(None)

    def wait(self) -> BaseException | None:
        """Return what has happened instead, None: nothing else."""
        gate = queue.SimpleQueue[None]()
        try:
            self._gates.add(gate)
            if not self.has_come:  # else a gate that came after it stays shut
                gate.get()
        finally:
            self._gates.discard(gate)
        return self._error
