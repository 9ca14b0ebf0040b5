"""Resetting an application: what is deleted, what stays, and what instances make of old state."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path

import pytest

from kohort import AdminClient, AsyncProducer
from kohort.streams import App
from kohort.streams.resetting import topics_of
from tests.real_kafka.foreign import create_topic
from tests.streams.flights import WAIT_S
from tests.streams.test_applications import SETTINGS
from tests.streams.test_command import kohort

pytestmark = pytest.mark.timeout(240)


def test_topics_of_other_applications_stay() -> None:
    present = [
        *("a-control", "a-n-changelog", "a-by-x-repartition", "a-dead-letters", "a-out", "in"),
        *("a-b-control", "a-b-n-changelog", "b-n-changelog", "ab-n-changelog", "ab-control"),
    ]
    own, foreign = topics_of("a", present)
    assert own == ["a-by-x-repartition", "a-n-changelog", "a-control"]
    assert foreign == ["a-b-n-changelog"]
    own, foreign = topics_of("a-b", present)
    assert (own, foreign) == (["a-b-n-changelog", "a-b-control"], [])


class Case:
    """An application that counts by the first letter of a key, which takes a repartition topic."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self.name = f"app-{uuid.uuid4().hex[:10]}"
        self.input = create_topic(address, f"{self.name}-in", 2)
        self.job: asyncio.Task[None] | None = None
        self.app = App(self.name)
        records = self.app.topic(self.input, key=str, value=str)
        records.key_by(lambda key, _: key[0], key=str, name="by").count(name="n")

    async def send(self, count: int) -> None:
        async with AsyncProducer(bootstrap_servers=self.address) as producer:
            for number in range(count):
                _ = await producer.send(self.input, b"x", b"k%d" % number)

    def counted(self) -> int:
        """Return how many records the running instance has counted."""
        try:
            return int(self.app.query("n", "k") or 0)
        except Exception:  # noqa: BLE001  # it is just starting
            return 0

    async def run(self, count: int) -> None:
        """Run an instance, and wait until it has counted so much."""
        async with asyncio.timeout(WAIT_S):
            self.job = asyncio.create_task(
                self.app.run_async(
                    bootstrap_servers=self.address, state_dir=self.folder, settings=SETTINGS
                )
            )
            while self.counted() < count and not self.job.done():
                await asyncio.wait({self.job}, timeout=0.05)

    async def stop(self) -> None:
        assert self.job is not None
        self.app.stop()
        async with asyncio.timeout(WAIT_S):
            await self.job

    def topics(self) -> set[str]:
        with AdminClient(bootstrap_servers=self.address) as admin:
            return {each for each in admin.list_topics() if each.startswith(self.name)}


def test_an_application_begins_anew(
    servers: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(servers, tmp_path)
    asyncio.run(_begins_anew(case))
    assert any("before application" in each for each in caplog.messages)


async def _begins_anew(case: Case) -> None:
    command = ("reset", case.name, "-b", case.address)
    await case.send(50)
    await case.run(50)
    code, _, error = await kohort(*command, "--execute")
    assert code == 1
    assert "has 1 members and is not reset: stop them first" in error
    await case.stop()
    before = case.topics()
    code, out, _ = await kohort(*command)
    assert code == 3
    assert "Nothing was deleted" in out
    assert case.topics() == before
    code, out, error = await kohort(*command, "--execute", "--json")
    assert code == 0, error
    found = json.loads(out)
    assert found["is_done"]
    assert set(found["topics"]) == before - {case.input}
    assert f"{case.input}-0" in found["offsets"]
    assert case.topics() == {case.input}
    code, _, error = await kohort(*command)
    assert code == 1
    assert "there is no stream application" in error
    assert "or the client's user may not DESCRIBE it" in error
    await case.send(10)
    await case.run(60)  # each record counts once: the state from before is gone
    assert case.counted() == 60
    await case.stop()
