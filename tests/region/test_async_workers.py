"""Coroutine functions as workers of a region, on a broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from kohort.client import ConsumerRecord
from kohort.region import AsyncRegionConsumer, KeyedState, ParquetDirectory, RegionPartition
from kohort.region.inspecting import ask
from kohort.region.machines.records import RESET
from tests.region.regions import PROTOCOLS, eventually, produce, running_sum, visible

PARTITIONS = 4


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until it is so, beside the loop of the workers."""
    await asyncio.to_thread(eventually, holds, what)


def test_a25_coroutine_functions_share_a_region_and_each_record_is_visible_once(
    address: str, topic: str, tmp_path: Path
) -> None:
    """One joins, the region is reset, and both end in order."""
    loops: set[asyncio.AbstractEventLoop] = set()
    calls: Counter[str] = Counter()

    def made(operator: str) -> AsyncRegionConsumer:
        async def function(
            partition: RegionPartition, records: Sequence[ConsumerRecord], state: KeyedState
        ) -> list[dict[str, int]]:
            await asyncio.sleep(0)
            loops.add(asyncio.get_running_loop())
            calls[operator] += 1
            return running_sum(partition, records, state)

        return AsyncRegionConsumer(
            f"region-{topic}", topic, function=function, sink=ParquetDirectory(tmp_path),
            operator=operator, group_id=f"group-{topic}", bootstrap_servers=address,
            period_ms=300, max_poll_records=50, **PROTOCOLS["consumer"],
        )  # fmt: skip

    async def play() -> None:
        one, two = made("one"), made("two")
        async with asyncio.TaskGroup() as workers:
            workers.create_task(one.run())
            await until(lambda: visible(tmp_path) == 1_000, "the first one works")
            workers.create_task(two.run())
            await until(lambda: two.metrics()["nPartitionsAssigned"] == 2, "both have their share")
            await asyncio.to_thread(produce, address, topic, PARTITIONS, 1_000, 1_000)
            await ask(one.region, {"bootstrap_servers": address}, RESET)
            await until(lambda: visible(tmp_path) == 2_000, "all is visible, once")
            one.stop()
            two.stop()
        assert one.state is not None
        assert one.state.attempt > 1
        assert loops == {asyncio.get_running_loop()}

    produce(address, topic, PARTITIONS, 1_000)
    asyncio.run(play())
    assert set(calls) == {"one", "two"}
