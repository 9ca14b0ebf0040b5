"""What the thread that works tells the event loop."""

from __future__ import annotations

import asyncio

from kohort.region.machines.events import Delivered, Stopped
from kohort.region.machines.records import RegionPartition
from kohort.region.reports import Reports
from kohort.region.work import Report

NORTH, SOUTH = (RegionPartition("t", "an-id", number) for number in (0, 1))


def heard(*reports: Report | Exception) -> list[Report | Exception]:
    """What the loop hears of reports that all come while it is busy."""

    async def hear() -> list[Report | Exception]:
        found: list[Report | Exception] = []
        over = asyncio.Event()
        way = Reports(asyncio.get_running_loop(), found.append)
        for each in reports:
            way.put(each)
        asyncio.get_running_loop().call_soon(over.set)
        await over.wait()
        return found

    return asyncio.run(hear())


def test_of_many_deliveries_the_last_of_each_read_is_heard() -> None:
    many = [Delivered(place, offset, 1) for offset in range(1, 100) for place in (NORTH, SOUTH)]
    assert heard(*many) == many[-2:]


def test_two_reads_of_a_partition_are_two() -> None:
    reads = [Delivered(NORTH, 5, 1), Delivered(NORTH, 3, 2)]
    assert heard(*reads) == reads


def test_no_report_overtakes_another() -> None:
    stopped, error = Stopped(frozenset({NORTH})), ValueError()
    before, after = Delivered(NORTH, 1, 1), Delivered(NORTH, 2, 1)
    assert heard(before, stopped, after, error) == [before, stopped, after, error]
