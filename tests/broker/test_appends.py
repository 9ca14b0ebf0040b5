"""Every append wakes a fetch that waits for records, at any moment."""

from __future__ import annotations

import asyncio

from kohort.broker.context import Appends
from kohort.types import TopicPartition

T = TopicPartition("t", 0)
LONG_S = 60.0
SOON_S = 10.0


def test_an_append_before_the_wait_has_begun_is_not_missed() -> None:
    """A fetch without records waits in a task that starts only after other requests."""

    async def run() -> None:
        appends = Appends()
        records: list[bytes] = []
        wait = asyncio.ensure_future(appends.wait_until([T], lambda: bool(records), LONG_S))
        records.append(b"record")
        appends.appended(T)
        async with asyncio.timeout(SOON_S):
            await wait

    asyncio.run(run())


def test_an_append_that_is_not_enough_wakes_nobody() -> None:
    async def run() -> None:
        appends = Appends()
        records: list[bytes] = []
        wait = asyncio.ensure_future(appends.wait_until([T], lambda: len(records) == 2, LONG_S))
        for _ in range(2):
            await asyncio.sleep(0)
            assert not wait.done()
            records.append(b"record")
            appends.appended(T)
        async with asyncio.timeout(SOON_S):
            await wait

    asyncio.run(run())
