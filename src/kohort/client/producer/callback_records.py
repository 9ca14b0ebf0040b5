"""Records that delivery callbacks send on the loop itself, which they must not block."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

from kohort.client.config.definitions import ProducerConfig
from kohort.client.net.backoff import Deadline
from kohort.client.producer.batch import NewRecord
from kohort.client.producer.delivery import closed, tell_all, tell_safely
from kohort.client.producer.delivery_future import DeliveryFuture
from kohort.client.producer.sender import Sender
from kohort.errors import KohortError, LocalProtocolError, RequestTimedOutError, error_text

_Waiting: TypeAlias = tuple[NewRecord, int, DeliveryFuture, Deadline]


class CallbackRecords:
    """Waits for metadata and memory on behalf of callbacks; keeps the order within a topic.

    Args:
        config: Settings; up to another `buffer_memory` bytes may wait here.
        sender: Receives the records.
    """

    def __init__(self, config: ProducerConfig, sender: Sender) -> None:
        self._config = config
        self._sender = sender
        self._queues: dict[str, deque[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 0
        self._why: KohortError | None = None

    def add(self, record: NewRecord) -> DeliveryFuture:
        """Pass a record on, at once if possible.

        Raises:
            KafkaError: The record cannot be sent, or the queue is full.
        """
        self._sender.batches.check()
        topic, value, key, headers, _, _ = record
        size = self._sender.batches.size_of(value, key, headers)
        queue = self._queues.get(topic)
        if queue is None:
            future = self._sender.batches.add(DeliveryFuture, *record)
            if future is not None:
                return future
        if self._size + size > self._config.buffer_memory:
            raise RequestTimedOutError(
                f"buffer.memory of {self._config.buffer_memory} bytes is full, and delivery"
                " callbacks have queued as much again"
            )
        waiting = record, size, DeliveryFuture.detached(), Deadline(self._config.max_block_ms)
        self._size += size
        if queue is not None:
            queue.append(waiting)
        else:
            self._queues[topic] = deque([waiting])
            task = asyncio.get_running_loop().create_task(self._pass_on(topic))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return waiting[2]

    @property
    def count(self) -> int:
        """Number of waiting records."""
        return sum(map(len, self._queues.values()))

    async def passed_on(self) -> None:
        """Wait until all records that are queued now are passed on."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self, why: KohortError | None = None) -> None:
        """Fail all waiting records.

        Args:
            why: The error; by default that the producer is closed.
        """
        self._why = why
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for topic in list(self._queues):  # a task that never started has reported nothing
            self._give_up(topic)
        self._why = None

    async def _pass_on(self, topic: str) -> None:
        queue = self._queues[topic]
        try:
            while queue:
                record, size, future, deadline = queue[0]
                await self._pass_one_on(record, future, deadline)
                queue.popleft()
                self._size -= size
        finally:
            self._give_up(topic)

    def _give_up(self, topic: str) -> None:
        for _, size, future, _ in self._queues.pop(topic, ()):
            self._size -= size
            tell_safely(future, self._sender.batches.fatal or self._why or closed())

    async def _pass_one_on(
        self, record: NewRecord, future: DeliveryFuture, deadline: Deadline
    ) -> None:
        try:
            delivery = await self._sender.add(record, deadline)
        except (KohortError, TypeError, ValueError) as error:
            known = (
                error if isinstance(error, KohortError) else LocalProtocolError(error_text(error))
            )
            self._sender.failed(known)
            tell_safely(future, error)
            return
        if not delivery.watch(future):
            tell_all([(delivery, future)])
