"""Runs a generator in a thread, a few items ahead of its consumer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Generic, TypeVar

T = TypeVar("T")

# How long a closing reader waits for a thread that is in the middle of a request.
_END_S = 5.0


class _Ahead(Generic[T]):
    """The queue between a thread that produces items and one that consumes them."""

    def __init__(self, make: Callable[[], Generator[T, None, None]], depth: int) -> None:
        self._make = make
        self._depth = depth
        self._changed = threading.Condition()
        self._items: deque[T] = deque()
        self._is_done = False
        self._is_stopped = False
        self._error: BaseException | None = None

    def fill(self) -> None:
        """Produce items until there are no more, or until `stop`."""
        error: BaseException | None = None
        try:
            with closing(self._make()) as items:
                for item in items:
                    if not self._put(item):
                        break
        except BaseException as raised:  # noqa: BLE001  # `take` raises it
            error = raised
        with self._changed:
            self._is_done, self._error = True, error
            self._changed.notify_all()

    def take(self) -> Generator[T, None, None]:
        """Yield the items, then raise the producer's error, if any."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_done)
                if not self._items:
                    break
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop the producer."""
        with self._changed:
            self._is_stopped = True
            self._items.clear()
            self._changed.notify_all()

    def _put(self, item: T) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._depth or self._is_stopped)
            if self._is_stopped:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True


def read_ahead(
    make: Callable[[], Generator[T, None, None]], depth: int = 1
) -> Generator[T, None, None]:
    """Yield the items of a generator while a thread already produces the next ones.

    At most `depth` items wait while one more is being produced. An exception of the generator is
    raised after the items before it. Closing this generator also closes the inner one.

    Args:
        make: Creates the generator; called in the thread.
        depth: Maximum number of waiting items.
    """
    ahead = _Ahead(make, depth)
    # A thread blocked in a request must not keep the process alive.
    thread = threading.Thread(target=ahead.fill, name="kohort-read-ahead", daemon=True)
    thread.start()
    try:
        yield from ahead.take()
    finally:
        ahead.stop()
        thread.join(_END_S)
