"""A coroutine function that is cancelled from within: an error of the function, and no silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kohort.client import ConsumerRecord
from kohort.region import AsyncRegionConsumer, FunctionError, RegionPartition
from kohort.region import consumer as consumers
from kohort.region.work import Batch, Inbox, Load
from tests.region.regions import LONG_S

PARTITION = RegionPartition("t", "an-id", 0)


class Worker:
    """A worker that has one batch, and ends by what is reported."""

    def __init__(self, *_: object) -> None:
        self.inbox = Inbox(10)
        self.inbox.put(Load(PARTITION, 1, 0, b""))
        self.inbox.put(Batch(PARTITION, 1, [ConsumerRecord("t", 0, 0, 0, 0, None, b"1", (), -1)]))
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        try:
            await self.ended
        finally:
            self.inbox.close()

    def report(self, report: object) -> None:
        if isinstance(report, Exception):
            self.ended.set_exception(report)

    def writer_for(self, _attempt: int) -> Any:
        return SimpleNamespace()


async def inner_task_is_cancelled(*_: object) -> None:
    task = asyncio.ensure_future(asyncio.get_running_loop().create_future())
    task.cancel()
    await task


async def cancels_itself(*_: object) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


class EndOfAll(BaseException):
    """Not an `Exception`."""


async def ends_all(*_: object) -> None:
    raise EndOfAll


def run(function: Callable[..., Awaitable[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "Worker", Worker)
    made = AsyncRegionConsumer(
        "r", "t", function=function, sink=cast("Any", None), operator="one", group_id="g",
        bootstrap_servers="127.0.0.1:1",
    )  # fmt: skip

    async def play() -> None:
        running = asyncio.create_task(made.run())
        done, _ = await asyncio.wait([running], timeout=LONG_S / 4)
        assert done, "it processes nothing, and does not end"
        running.result()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (inner_task_is_cancelled, "the function raised CancelledError for offsets 0 to 0 of t-0"),
        (cancels_itself, "the task that processes records was cancelled"),
        (ends_all, r"the task that processes records ended by EndOfAll\(\)"),
    ],
)
def test_a_function_that_ends_its_task_ends_the_worker(
    function: Callable[..., Awaitable[Any]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FunctionError, match=said):
        run(function, monkeypatch)


def test_an_end_from_outside_is_no_error_of_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "Worker", Worker)
    begun = asyncio.Event()

    async def waits(*_: object) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    async def play() -> None:
        made = AsyncRegionConsumer(
            "r", "t", function=waits, sink=cast("Any", None), operator="one", group_id="g",
            bootstrap_servers="127.0.0.1:1",
        )  # fmt: skip
        running = asyncio.create_task(made.run())
        await asyncio.wait_for(begun.wait(), LONG_S)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(play())
