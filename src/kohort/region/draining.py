"""The drain as in IBM Streams, for regions with `rebalance="reset"`.

For its part of a checkpoint, the operator stops polling, empties the function's queue, and commits
all its offsets to the group in one synchronous request. In other regions, operators keep processing
during a checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.client import AsyncConsumer
    from kohort.region.machines.records import RegionPartition
    from kohort.region.work import Inbox


class Draining:
    """The drains of one operator, on its event loop.

    Args:
        consumer: Commits offsets; it is not polled during a drain.
        inbox: The function's queue.
        empties_queue: Whether the function gets no records until the drain is over. In an
            operator-driven region an operator asked for the drain, and the queue is kept.
        limit_ms: Timeout of a commit, and maximum pause of polling, in milliseconds.
    """

    def __init__(
        self, consumer: AsyncConsumer, inbox: Inbox, *, empties_queue: bool, limit_ms: int
    ) -> None:
        self._consumer = consumer
        self._inbox = inbox
        self._empties_queue = empties_queue
        self._limit_ms = limit_ms
        self._is_over = asyncio.Event()
        self._is_over.set()

    def begin(self) -> None:
        """Stop polling, and move the queue to the drain buffer."""
        self._is_over.clear()
        if self._empties_queue:
            self._inbox.set_aside()

    def end(self) -> bool:
        """Resume polling, and restore the queue; return whether there was a drain."""
        was_on = not self._is_over.is_set()
        self._is_over.set()
        self._inbox.put_back()
        return was_on

    async def may_poll(self) -> None:
        """Wait for the end of a drain, but not too long: the group removes silent members."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limit_ms / 1000):
                while not self._is_over.is_set():  # another drain may begin before this wakes up
                    await self._is_over.wait()

    async def commit(
        self,
        positions: Mapping[RegionPartition, int],
        places: Mapping[TopicPartition, RegionPartition],
    ) -> None:
        """Commit offsets in one request.

        Args:
            positions: The next offset of each partition.
            places: The assigned partitions; others are left out.

        Raises:
            KohortError: The group refused at least one partition's offset.
        """
        offsets = {
            place: OffsetAndMetadata(positions[partition])
            for place, partition in places.items()
            if partition in positions
        }
        if offsets:
            await self._consumer.commit(offsets, self._limit_ms)
