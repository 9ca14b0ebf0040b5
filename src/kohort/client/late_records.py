"""Records that callbacks of deliveries send, on the loop itself: they must not block it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

from kohort.client.backoff import Deadline
from kohort.client.config import ProducerConfig
from kohort.client.delivery import Delivery, NewRecord, tell
from kohort.client.sender import Sender
from kohort.errors import KohortError, LocalProtocolError, RequestTimedOutError

_Late: TypeAlias = tuple[NewRecord, Delivery, Deadline]


class LateRecords:
    """Waits for metadata and for memory in place of who sends records, in the order of a topic.

    Args:
        config: Settings; as much as `buffer_memory` may wait here, too.
        sender: Takes the records.
    """

    def __init__(self, config: ProducerConfig, sender: Sender) -> None:
        self._config = config
        self._sender = sender
        self._queues: dict[str, deque[_Late]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._size = 0

    def add(self, record: NewRecord, delivery: Delivery) -> None:
        """Pass a record on, at once if that can be.

        Raises:
            KafkaError: There is no such partition, or too much waits already.
        """
        queue = self._queues.get(record.topic)
        if queue is None:
            partitions = self._sender.partitions_of(record.topic)
            if partitions is not None and self._sender.append(record, partitions, delivery):
                return
        if self._size + record.size > self._config.buffer_memory:
            raise RequestTimedOutError(
                f"buffer.memory of {self._config.buffer_memory} bytes is full, and callbacks of"
                " deliveries have sent as much again, which waits for room"
            )
        self._size += record.size
        late = record, delivery, Deadline(self._config.max_block_ms)
        if queue is not None:
            queue.append(late)
            return
        self._queues[record.topic] = deque([late])
        task = asyncio.get_running_loop().create_task(self._pass_on(record.topic))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def passed_on(self) -> None:
        """Wait until nothing of what is here now waits any longer."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Fail what still waits."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(self, topic: str) -> None:
        queue = self._queues[topic]
        try:
            while queue:
                record, delivery, deadline = queue[0]
                try:
                    await self._add(record, delivery, deadline)
                except KohortError as error:
                    tell(delivery, error)
                queue.popleft()
                self._size -= record.size
        finally:
            del self._queues[topic]
            for record, delivery, _ in queue:
                self._size -= record.size
                tell(delivery, LocalProtocolError("the producer is closed"))

    async def _add(self, record: NewRecord, delivery: Delivery, deadline: Deadline) -> None:
        partitions = await self._sender.find_topic(record.topic, deadline)
        while not self._sender.append(record, partitions, delivery):
            if not await self._sender.room(record.size, deadline):
                raise RequestTimedOutError(
                    f"buffer.memory of {self._config.buffer_memory} bytes was full for"
                    f" {self._config.max_block_ms} ms"
                )
