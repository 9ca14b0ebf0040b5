"""Clocks that differ between the processes of a region, and from the brokers'."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kohort.client import AdminClient, AsyncProducer, NewTopic
from kohort.region import ControlTopicError, ParquetDirectory
from kohort.region.machines.events import Asked, Assigned, Close, Revoked, StartFound
from kohort.region.machines.records import RESET, RegionRecord
from tests.region.harness import P, Process, Q, Region
from tests.region.regions import Running, eventually, produce, running, visible, worker

PARTITIONS = 4
HOUR_MS = 3_600_000


class Differing(Process):
    """An operator whose clock differs from the controller's."""

    ahead_ms = 0

    def tell(self, event: Any) -> Any:
        region = self.region
        there = region.now
        region.now += self.ahead_ms
        try:
            return super().tell(event)
        finally:
            region.now = there


def history(ahead_ms: int) -> list[RegionRecord]:
    """Play a checkpoint, a hand-over, a reset and an end of two operators, and return the log."""
    region = Region()
    region.now = 10 * HOUR_MS
    region.elect()
    a = Differing(region, "a")
    a.ahead_ms = ahead_ms
    region.processes.append(a)
    a.put(Assigned(frozenset()))
    region.pass_time(0)
    region.write()
    b = region.process("b", owns=[Q])
    a.put(Assigned(frozenset({P})))
    a.put(StartFound(P, 0))
    a.deliver(P, 50)
    region.pass_time(1_000)
    a.deliver(P, 70)
    a.put(Revoked(frozenset({P})))
    assert a.returned == 1
    b.put(Assigned(frozenset({P})))
    assert b.reads[P].offset == 70
    region.control(Asked(RESET))
    region.run()
    region.pass_time(1_000)
    a.put(Close())
    assert a.is_closed
    assert (a.failed, b.failed) == (None, None)
    assert region.state.completed == 3
    return region.log


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, HOUR_MS])
def test_an_hour_between_operator_and_controller_changes_nothing(ahead_ms: int) -> None:
    """Each counts from its own look at the log: nothing expires, and nothing waits longer."""
    assert history(ahead_ms) == history(0)


@pytest.fixture(params=[-2 * HOUR_MS, 2 * HOUR_MS])
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers of this process have the wrong time."""
    send: Any = AsyncProducer.send

    async def late(producer: AsyncProducer, *given: Any, **named: Any) -> Any:
        stamp = int(time.time() * 1000) + request.param
        return await send(producer, *given, **named, timestamp_ms=stamp)

    monkeypatch.setattr(AsyncProducer, "send", late)


@pytest.mark.usefixtures("wrong_clock")
def test_a_worker_whose_clock_is_wrong_takes_part(address: str, topic: str, tmp_path: Path) -> None:
    produce(address, topic, PARTITIONS, 100)
    with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
        eventually(lambda: one.is_over or visible(tmp_path) == 100, "all is visible")
    assert one.error is None


@pytest.mark.parametrize("wrong_clock", [2 * HOUR_MS], indirect=True)
@pytest.mark.usefixtures("wrong_clock")
def test_a_control_topic_of_an_earlier_version_refuses_a_wrong_clock_by_name(
    address: str, topic: str, tmp_path: Path
) -> None:
    control = f"__kohort-region-region-{topic}"
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(control, 1, 1, {"cleanup.policy": "compact"})])
    one = Running(worker(address, topic, ParquetDirectory(tmp_path)))
    one.join()
    assert isinstance(one.error, ControlTopicError)
    assert "Set the clock of this machine" in str(one.error)
