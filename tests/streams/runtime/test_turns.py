"""One turn of each task: what it waits for, and what is not fetched meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from kohort.streams import App
from kohort.streams.assignment.tasks import Task
from kohort.streams.settings import StreamSettings
from kohort.types import TopicPartition
from tests.streams.stubs import Stand, record

INPUT, OTHER, TASK = TopicPartition("in", 0), TopicPartition("other", 0), Task(0, 0)
ENOUGH = 1_000


def test_a_partition_is_paused_each_time_that_enough_of_it_waits() -> None:
    asyncio.run(_pressed_back())


async def _pressed_back() -> None:
    app = App("a")
    app.topic("in", key=str, value=str).for_each(lambda key, value: None)
    async with Stand(app, [INPUT], settings=StreamSettings(process_budget=ENOUGH)) as stand:
        held, turns = stand.run(TASK), stand.instance._turns
        for first in (0, 2 * ENOUGH):
            records = [record(INPUT, first + number) for number in range(2 * ENOUGH)]
            held.work.add(INPUT, records)
            await turns.take(stand.owning)
            assert stand.consumer.paused == {INPUT}
            await turns.take(stand.owning)
            assert stand.consumer.paused == set()


def test_an_input_whose_end_is_not_known_yet_is_awaited() -> None:
    """It may have records that are older (KIP-695)."""
    asyncio.run(_awaited())


async def _awaited() -> None:
    app = App("a")
    table = app.topic("other", key=str, value=str).table(name="t")
    app.topic("in", key=str, value=str).left_join(table, lambda mine, other: mine, value=str).to(
        "out"
    )
    async with Stand(app, [INPUT, OTHER]) as stand:
        lags: dict[TopicPartition, int | None] = {INPUT: 0}
        consumer: Any = stand.consumer
        consumer.current_lag = lags.get
        stand.run(TASK).work.add(INPUT, [record(INPUT, 0)])
        await stand.process()
        assert stand.producer.sent == []
        lags[OTHER] = 0
        await stand.process()
        assert stand.producer.sent == ["out"]
