"""Offsets given to `store_offsets` stay pending until a commit succeeds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kohort.client.consumer.aio import AsyncConsumer
from kohort.client.consumer.commits.committer import Offsets
from kohort.client.net.backoff import Deadline
from kohort.errors import KafkaError, KohortError, LocalProtocolError, RequestTimedOutError
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.client.loops import on_a_loop

PLACE = TopicPartition("t", 0)


class Broker:
    """Answers commits on command.

    Attributes:
        asked: The offsets of each commit.
        answers: One answer for each requested commit; None if it is stored.
    """

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: asyncio.Queue[asyncio.Future[KafkaError | None]] = asyncio.Queue()

    async def commit(self, offsets: Offsets, _: Deadline) -> None:
        if not offsets:
            return
        self.asked.append(offsets[PLACE].offset)
        answer: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        self.answers.put_nowait(answer)
        error = await answer
        if error is not None:
            raise error


@asynccontextmanager
async def storing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, offset: int
) -> AsyncIterator[AsyncConsumer]:
    """A consumer with the stored offset `offset`."""
    consumer = AsyncConsumer(
        bootstrap_servers="h:1",
        group_id="g",
        enable_auto_offset_store=False,
        enable_auto_commit=False,
    )
    core = consumer._core
    core.partitions.add([PLACE])
    consumer.store_offsets({PLACE: offset})
    monkeypatch.setattr(core.committing(), "commit", broker.commit)
    yield consumer
    await consumer.close(1)


@on_a_loop
async def test_a_commit_that_was_cancelled_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    async with storing(broker, monkeypatch, 42) as consumer:
        for offsets in None, {PLACE: 42}, {PLACE: 100}:
            task = asyncio.create_task(consumer.commit(offsets))
            _ = await broker.answers.get()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert consumer._core.commit_positions() == {PLACE: OffsetAndMetadata(42)}
        last = asyncio.create_task(consumer.commit())
        (await broker.answers.get()).set_result(None)
        await last
        assert broker.asked == [42, 42, 100, 42]
        assert consumer._core.commit_positions() == {}


@on_a_loop
async def test_a_commit_beside_another_does_not_count_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    async with storing(broker, monkeypatch, 42) as consumer:
        first = consumer.commit_async()
        lost = await broker.answers.get()
        second = asyncio.create_task(consumer.commit())
        (await broker.answers.get()).set_result(None)
        lost.set_result(RequestTimedOutError("lost"))
        await second
        with pytest.raises(RequestTimedOutError):
            await first
        assert broker.asked == [42, 42]


@on_a_loop
async def test_who_is_told_of_commits_is_told_that_one_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[KohortError | None] = []
    broker = Broker()
    async with storing(broker, monkeypatch, 42) as consumer:
        task = consumer.commit_async(on_commit=lambda _, error: told.append(error))
        _ = await broker.answers.get()
        task.cancel()
        await consumer.poll(0)
    assert isinstance(told[0], LocalProtocolError)
    assert "the broker may still have stored it" in str(told[0])
