"""Constant input for stream applications under test, and what came out of them."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from kohort import AsyncConsumer, AsyncProducer, TopicPartition
from kohort.streams.runtime.interface import Application
from tests.real_kafka.foreign import create_topic
from tests.streams.counting import counting

TASKS = 4
_KEYS = 400  # so many that hardly any changes twice between two commits
_PAUSE_S = 0.02
_AT_ONCE = 10
_WAIT_S = 90.0


class Case:
    """An application with topics of its own on a broker."""

    def __init__(self, address: str, tasks: int = TASKS) -> None:
        self.address = address
        self.name = f"app-{uuid.uuid4().hex[:10]}"
        self.tasks = tasks
        self.input = create_topic(address, f"{self.name}-in", tasks)
        self.output = create_topic(address, f"{self.name}-out", tasks)
        self.sent: Counter[bytes] = Counter()

    def application(self, folder: Path | None = None) -> Application:
        """Return the application, with its state in memory or in a folder."""
        return counting(self.name, self.input, self.output, folder)

    async def send(self, producer: AsyncProducer, count: int) -> None:
        """Send records of all keys in turn."""
        for number in range(count):
            key = b"key-%d" % (number % _KEYS)
            _ = await producer.send(self.input, b"x", key)
            self.sent[key] += 1

    async def until_sent(self, count: int) -> None:
        """Wait until so many records were sent in all, and counted."""
        async with asyncio.timeout(_WAIT_S):
            while self.sent.total() < count:
                await self.counts()

    @asynccontextmanager
    async def fed(self) -> AsyncIterator[None]:
        """Send records all the time."""
        is_over = asyncio.Event()

        async def feed() -> None:
            async with AsyncProducer(bootstrap_servers=self.address) as producer:
                while not is_over.is_set():
                    await self.send(producer, _AT_ONCE)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_PAUSE_S):
                            await is_over.wait()

        job = asyncio.create_task(feed())
        try:
            yield
        finally:
            is_over.set()
            await job

    async def counts(self) -> dict[bytes, list[int]]:
        """Return all counts that came out of each key, once each key came to what was sent."""
        found: dict[bytes, list[int]] = {}
        wanted = dict(self.sent)
        parts = [TopicPartition(self.output, number) for number in range(self.tasks)]
        consumer = AsyncConsumer(bootstrap_servers=self.address, auto_offset_reset="earliest")
        async with consumer, asyncio.timeout(_WAIT_S):
            consumer.assign(parts)
            consumer.seek_to_beginning(*parts)
            while any(max(found.get(k, [0])) < count for k, count in wanted.items()):
                for records in (await consumer.poll(1_000)).values():
                    for record in records:
                        found.setdefault(record.key, []).append(int(record.value))
        return found

    async def check_exact(self) -> None:
        """Each record was counted once, in order, as by one instance that nothing disturbs."""
        found = await self.counts()
        assert found == {key: [*range(1, count + 1)] for key, count in self.sent.items()}

    async def check_at_least_once(self) -> None:
        """No count is lower than the truth."""
        found = await self.counts()
        for key, count in self.sent.items():
            assert max(found[key]) >= count
            # one that was in the changelog, but not yet in the output, is passed over by the next
            assert len(found[key]) >= count
