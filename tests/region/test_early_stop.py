"""A worker that is told to stop before it has begun to read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kohort.client import ConsumerRecord
from kohort.region import AsyncRegionConsumer, KeyedState, ParquetDirectory, RegionPartition
from tests.region.regions import LONG_S, Counting, Running, produce, running_sum, worker

PARTITIONS = 4


class Opening(ParquetDirectory):
    """A directory during whose opening something happens."""

    happens: Callable[[], object] = staticmethod(lambda: None)

    def open(self, region: str, region_id: str, shown: int) -> None:
        super().open(region, region_id, shown)
        self.happens()


@pytest.mark.parametrize("when", ["before it runs", "while it opens its sink"])
def test_a_stop_that_comes_early_is_not_lost(
    address: str, topic: str, tmp_path: Path, when: str
) -> None:
    produce(address, topic, PARTITIONS, 100)
    sink, counting = Opening(tmp_path), Counting()
    made = worker(address, topic, sink, function=counting)
    if when == "before it runs":
        made.stop()
    else:
        sink.happens = made.stop
    one = Running(made)
    one.join()
    assert (one.error, counting.given) == (None, {})


@pytest.mark.parametrize("when", ["before it runs", "while it opens its sink"])
def test_a_stop_of_a_coroutine_function_that_comes_early_is_not_lost(
    address: str, topic: str, tmp_path: Path, when: str
) -> None:
    produce(address, topic, PARTITIONS, 100)
    calls: list[int] = []

    async def function(
        partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
    ) -> list[dict[str, int]]:
        calls.append(len(records))
        return running_sum(partition, records, state)

    async def play() -> None:
        loop, sink = asyncio.get_running_loop(), Opening(tmp_path)
        made = AsyncRegionConsumer(
            f"region-{topic}", topic, function=function, sink=sink, operator="one",
            group_id=f"group-{topic}", bootstrap_servers=address,
        )  # fmt: skip
        if when == "before it runs":
            made.stop()
        else:
            sink.happens = lambda: loop.call_soon_threadsafe(made.stop)
        await asyncio.wait_for(made.run(), LONG_S / 4)

    asyncio.run(play())
    assert calls == []
