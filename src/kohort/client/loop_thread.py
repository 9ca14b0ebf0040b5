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
        self._lock = threading.Lock()

    def run(self, make: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run a coroutine on the loop and wait for its result.

        Raises:
            LocalProtocolError: It is called from the loop itself, which would wait for ever.
        """
        return _result(self.submit(make))

    def submit(self, make: Callable[[], Coroutine[object, object, T]]) -> Future[T]:
        """Start a coroutine on the loop."""
        if threading.current_thread() is self._thread:
            raise LocalProtocolError("a blocking call was made from the client's own thread")
        with self._lock:
            if self._loop.is_closed():
                raise LocalProtocolError("the client is closed")
            if not self._started:
                self._started = True
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(make(), self._loop)

    def run_serving(self, make: Callable[[Serve], Coroutine[object, object, T]]) -> T:
        """Run a coroutine that may have calls made in this thread meanwhile, and wait for it."""
        serve = Serve()
        future = self.submit(lambda: make(serve))
        future.add_done_callback(serve.finish)
        try:
            serve.until_finished()
        except BaseException:  # an interrupt from the keyboard
            future.cancel()
            raise
        return _result(future)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function; does nothing once it is closed."""
        with self._lock:
            if self._started and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """End the thread; calls of other threads that still wait raise LocalProtocolError."""
        with self._lock:
            if self._loop.is_closed():
                return
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
    """Lets a coroutine call functions in the thread that waits for it."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in the waiting thread and return what it returns."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[object] = loop.create_future()
        self._calls.put((function, done))
        return cast("T", await done)

    def finish(self, _: object) -> None:
        """Let the waiting thread go on."""
        self._calls.put(None)

    def until_finished(self) -> None:
        """Make calls until `finish`; in the waiting thread."""
        while (item := self._calls.get()) is not None:
            function, done = item
            loop = done.get_loop()
            try:
                result = function()
            except Exception as error:  # noqa: BLE001  # it is raised where it was asked for
                loop.call_soon_threadsafe(_fail, done, error)
            except BaseException:  # an interrupt is this thread's business
                loop.call_soon_threadsafe(done.cancel)
                raise
            else:
                loop.call_soon_threadsafe(_succeed, done, result)


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except CancelledError:  # nobody but `close` cancels what a thread waits for
        raise LocalProtocolError("the client was closed meanwhile") from None


def _succeed(done: asyncio.Future[object], result: object) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[object], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
