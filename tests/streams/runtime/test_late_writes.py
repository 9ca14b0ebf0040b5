"""An instance that stood still for longer than its session does not overwrite newer state."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kohort import AsyncProducer
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings
from tests.streams.counting import WAIT_S, Running, running
from tests.streams.feeding import Case

SESSION = {"session_timeout_ms": 1_000, "heartbeat_interval_ms": 200}
OFTEN = StreamSettings(commit_interval_ms=100)
# It commits with its first step, when there is nothing, and when it ends.
SELDOM = StreamSettings(commit_interval_ms=600_000)


class Apart:
    """An instance with a loop and a thread of its own, which can stand still."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._go_on = threading.Event()
        self._began = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._one: Running | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._began.wait(WAIT_S)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        case = self._case
        self._one = Running(case.application(), case.address, SELDOM, **SESSION)
        self._began.set()
        await self._one.job

    def stand_still(self) -> None:
        """Stop its loop; when it goes on, the first thing that it does is to end."""
        assert self._loop is not None
        assert self._one is not None
        stands = threading.Event()

        def stand() -> None:
            stands.set()
            self._go_on.wait(WAIT_S)

        self._loop.call_soon_threadsafe(stand)
        self._loop.call_soon_threadsafe(self._one.instance.stop)
        assert stands.wait(WAIT_S)

    def end(self) -> None:
        """Let it go on, and wait until it has ended."""
        assert self._loop is not None
        assert self._one is not None
        self._go_on.set()
        self._loop.call_soon_threadsafe(self._one.instance.stop)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@contextmanager
def apart(case: Case) -> Iterator[Apart]:
    one = Apart(case)
    try:
        yield one
    finally:
        one.end()


def test_an_instance_that_stood_still_does_not_write_to_changelogs_of_others(
    servers: str,
) -> None:
    asyncio.run(_written_late(Case(servers, tasks=1)))


async def _written_late(case: Case) -> None:
    application = case.application()
    async with AsyncProducer(bootstrap_servers=case.address) as producer:

        async def counted(times: int) -> None:
            for _ in range(times):
                await case.send(producer, 1)
            await case.counts()

        with apart(case) as late:
            await counted(5)
            late.stand_still()
            async with running(application, case.address, OFTEN, **SESSION) as second:
                await second.until(lambda: Role.RUNNING in second.instance.tasks.values())
                await counted(3)
        async with running(application, case.address, OFTEN, **SESSION):
            await counted(1)
