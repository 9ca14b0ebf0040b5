"""Wake up fetches that wait for new records of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from kohort.types import TopicPartition


class Appends:
    """Waiting readers, by partition."""

    def __init__(self) -> None:
        """Start without waiters."""
        self._waiting: dict[TopicPartition, set[Callable[[], None]]] = {}

    def appended(self, partition: TopicPartition) -> None:
        """Wake all that wait for this partition."""
        for wake in tuple(self._waiting.get(partition, ())):
            wake()

    async def wait_until(
        self, partitions: Collection[TopicPartition], enough: Callable[[], bool], timeout_s: float
    ) -> None:
        """Return when `enough` holds, or after the time.

        Nothing is polled: `enough` is asked at first, for there may have been an append since it
        was asked last, and once per append to one of the partitions.
        """
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def wake() -> None:
            if not woken.done() and enough():
                woken.set_result(None)

        def give_up() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = loop.call_later(timeout_s, give_up)
        for partition in partitions:
            self._waiting.setdefault(partition, set()).add(wake)
        try:
            wake()
            await woken
        finally:
            timer.cancel()
            for partition in partitions:
                readers = self._waiting[partition]
                readers.discard(wake)
                if not readers:
                    del self._waiting[partition]
