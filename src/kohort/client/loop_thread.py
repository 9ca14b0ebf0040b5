"""A loop in a thread of its own: what stands behind the blocking faces."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import TypeVar, cast

from kohort.errors import LocalProtocolError

T = TypeVar("T")
R = TypeVar("R")

# What the loop wants done in the application's thread.
_Call = tuple[Callable[[], object], "asyncio.Future[object]"]


class LoopThread:
    """Runs coroutines of one client in a background thread.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = False
        self._closed = False
        self._lock = threading.Lock()

    def run(self, make: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run a coroutine on the loop and wait for its result.

        Raises:
            LocalProtocolError: It is called from the loop itself, which would wait for ever.
        """
        return _result(self.submit(make).result)

    def submit(self, make: Callable[[], Coroutine[object, object, T]]) -> Future[T]:
        """Start a coroutine on the loop."""
        return self._post(lambda: asyncio.run_coroutine_threadsafe(make(), self._loop))

    def run_serving(self, make: Callable[[Serve], Coroutine[object, object, T]]) -> T:
        """Run a coroutine that may have calls made in this thread meanwhile, and wait for it."""
        serve = Serve(self._loop)
        self._post(lambda: serve.start(make))
        serve.until_finished()
        return cast("T", _result(serve.result))

    def _post(self, post: Callable[[], T]) -> T:
        """Have something called that hands work to the running loop."""
        if threading.current_thread() is self._thread:
            raise LocalProtocolError("a blocking call was made from the client's own thread")
        with self._lock:
            if self._closed:
                raise LocalProtocolError("the client is closed")
            if not self._started:
                self._started = True
                self._thread.start()
            return post()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function; does nothing once it is closed."""
        with self._lock:
            if self._started and not self._closed:
                self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """End the thread; calls of other threads that still wait raise LocalProtocolError."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if not self._started:
                self._loop.close()
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


class Serve:
    """A coroutine on a loop, which has functions called in the thread that waits for it.

    Args:
        loop: The loop; it runs in another thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[object] | None = None
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()

    def start(self, make: Callable[[Serve], Coroutine[object, object, object]]) -> None:
        """Start the coroutine; in the waiting thread."""
        self._loop.call_soon_threadsafe(self._start, make)

    def _start(self, make: Callable[[Serve], Coroutine[object, object, object]]) -> None:
        self._task = self._loop.create_task(make(self))
        self._task.add_done_callback(lambda _: self._calls.put(None))

    async def call(self, function: Callable[[], R]) -> R:
        """Call a function in the waiting thread and return what it returns."""
        done: asyncio.Future[object] = self._loop.create_future()
        self._calls.put((function, done))
        return cast("R", await done)

    def until_finished(self) -> None:
        """Make calls until the coroutine is finished; in the waiting thread."""
        try:
            while (item := self._calls.get()) is not None:
                self._make(*item)
        except BaseException:  # an interrupt from the keyboard
            self._loop.call_soon_threadsafe(self._cancel)
            raise

    def _make(self, function: Callable[[], object], done: asyncio.Future[object]) -> None:
        try:
            result = function()
        except Exception as error:  # noqa: BLE001  # it is raised where it was asked for
            self._loop.call_soon_threadsafe(_fail, done, error)
        else:
            self._loop.call_soon_threadsafe(_succeed, done, result)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def result(self) -> object:
        """Return what the coroutine returned, or raise what it raised."""
        assert self._task is not None
        return self._task.result()


def _result(get: Callable[[], T]) -> T:
    try:
        return get()
    except (CancelledError, asyncio.CancelledError):  # only `close` cancels what is waited for
        raise LocalProtocolError("the client was closed meanwhile") from None


def _succeed(done: asyncio.Future[object], result: object) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[object], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
