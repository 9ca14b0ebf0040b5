"""The end of a query in a region: what has to be in a checkpoint, and what is waited for."""

from __future__ import annotations

import asyncio
import inspect
import logging
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kohort.errors import KohortError
from kohort.region import OperatorId, ParquetDirectory, RegionError, RegionPartition
from kohort.region.work import Discard, Load, Stop
from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.options.source import parse_options
from kohort.spark.region import driver as region_driver
from kohort.spark.region.driver import RegionDriver
from kohort.spark.region.ipc import Channel, HandOver, OpenBatch, watch_end
from kohort.spark.region.work import SparkWork

HERE = RegionPartition("t", "an-id", 0)
GIVEN = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "subscribe": "t",
    "kafka.group.id": "g",
    "kafka.client.id": "north",
    "consistentRegion": "r",
}


class Operator:
    """An operator without a broker; `ends` goes through what the group gives out, poll by poll."""

    def __init__(self, directory: Path, given: list[dict[RegionPartition, int]]) -> None:
        self.channel = Channel(directory)
        self.work = SparkWork(
            "r",
            OperatorId("north", "i"),
            ParquetDirectory(directory / "out"),
            lambda _: None,
            self.channel,
            keeps_state=False,
        )
        self.error = None
        self.attempt = 1
        self.completed = 1
        self.has_ended = False
        self.session_s = 3_600.0
        self.have_all = False
        self.held: dict[RegionPartition, int] = {}
        self.given = given
        self.polls = 0

    def ends(self, _check: Callable[[], None]) -> Mapping[RegionPartition, int]:
        self.polls += 1
        self.completed = 2 if self.polls > 2 else 1
        found = self.given.pop(0) if self.given else {}
        if found and HERE not in self.work.positions():
            self.work.obey(Load(HERE, 1, 0, b""))
        return found

    def others_have_all(self) -> bool:
        return self.have_all

    def has_checkpoint(self, partition: RegionPartition, end: int) -> bool:
        return self.held.get(partition, 0) >= end

    def hand_over(self, end: int) -> None:
        batch = self.work.offer({HERE: end}, None, 1)
        assert batch is not None
        assert self.work.take_over(f"{batch.nonce}-{batch.epoch}-{batch.batch}", HandOver())

    def close(self) -> None:
        self.has_ended = True

    def obey_next(self, timeout_s: float) -> None:
        threading.Event().wait(timeout_s)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegionDriver]:
    monkeypatch.setattr(region_driver, "_SHARE_WAIT_S", 0.0)
    monkeypatch.setattr(region_driver, "_ENDS_S", 0.0)
    made = RegionDriver(parse_options(GIVEN))
    yield made
    made.stop()


def wait_for_batch(driver: RegionDriver, operator: Operator) -> Manifest | None:
    driver.prepare_available_now()
    return driver._wait_for_batch(cast("Any", operator), None, {})


def test_a_group_that_waits_for_a_dead_member_is_waited_for(
    driver: RegionDriver, tmp_path: Path
) -> None:
    operator = Operator(tmp_path, [{}, {}, {}, {HERE: 10}])
    batch = wait_for_batch(driver, operator)
    assert batch is not None
    assert list(batch.ranges.values()) == [(0, 10)]


def test_a_query_without_a_share_ends_once_others_are_seen_to_read_everything(
    driver: RegionDriver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator(tmp_path, [])
    operator.have_all = True
    assert wait_for_batch(driver, operator) is None
    assert operator.polls > 2  # a checkpoint has to come first: that nobody is dead
    assert caplog.messages == []


def test_a_query_that_is_given_nothing_for_long_ends_with_a_warning(
    driver: RegionDriver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator(tmp_path, [])
    operator.session_s = 0.0
    with caplog.at_level(logging.WARNING):
        assert wait_for_batch(driver, operator) is None
    assert "north ends without a partition: its group g has assigned it none" in caplog.text


@pytest.mark.parametrize("after", [Discard(2), Stop(frozenset({HERE}))])
@pytest.mark.parametrize("is_held", [False, True])
def test_an_end_needs_a_checkpoint_of_all_that_was_handed_over(
    driver: RegionDriver, tmp_path: Path, after: Discard | Stop, is_held: bool
) -> None:
    """Also after a reset, which has thrown it away, and of what is leaving at that moment."""
    operator = Operator(tmp_path, [])
    operator.work.obey(Load(HERE, 1, 0, b""))
    operator.hand_over(10)
    operator.work.obey(after)
    assert operator.work.handed_over() == {HERE: 10}
    operator.held = {HERE: 10 if is_held else 9}
    driver._operator = cast("Any", operator)
    if is_held:
        driver._finish(cast("Any", operator), {})
    else:
        with pytest.raises(RegionError, match="does not hold all that was read of t-0"):
            driver._finish(cast("Any", operator), {})


class SlowSink(ParquetDirectory):
    """Takes as long to unpickle as a test wants."""

    begun = threading.Event()
    may_end = threading.Event()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.begun.set()
        assert self.may_end.wait(60)
        self.__dict__.update(state)


def test_an_operator_whose_sink_comes_after_the_end_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr(region_driver, "_Operator", lambda *given: made.append(given))
    driver = RegionDriver(parse_options(GIVEN))
    driver.latest(driver.initial(), None)
    found = OpenBatch(driver._control.directory, driver._greeting)
    counts: list[bool] = []
    handing = threading.Thread(
        target=lambda: counts.append(
            found.hand_over(HandOver(sink=pickle.dumps(SlowSink(tmp_path))))
        )
    )
    handing.start()
    assert SlowSink.begun.wait(60)
    ending = threading.Thread(target=driver._end)
    ending.start()
    assert driver._closing.wait(60)
    SlowSink.may_end.set()
    ending.join(60)
    handing.join(60)
    driver.stop()
    assert (made, counts) == ([], [False])


@pytest.mark.parametrize("is_held", [False, True])
def test_a_region_that_was_stopped_ends_the_query_once_all_is_in_a_checkpoint(
    driver: RegionDriver, tmp_path: Path, is_held: bool
) -> None:
    operator = Operator(tmp_path, [])
    operator.work.obey(Load(HERE, 1, 0, b""))
    operator.hand_over(10)
    operator.held = {HERE: 10 if is_held else 9}
    driver._operator, driver._has_greeted = cast("Any", operator), True
    operator.has_ended = True
    start, source = driver.initial(), driver._control.directory
    stopped = threading.Event()
    watch_end(source, stopped.set, "north")
    if is_held:
        assert driver.latest(start, None) == start
        assert stopped.wait(60)
        assert driver.latest(start, None) == start
    else:
        with pytest.raises(RegionError, match="does not hold all that was read of t-0"):
            driver.latest(start, None)
        assert not stopped.is_set()


def test_an_operator_that_has_failed_is_no_end(driver: RegionDriver, tmp_path: Path) -> None:
    operator = Operator(tmp_path, [])
    operator.error = cast("Any", KohortError("fenced"))
    driver._operator = cast("Any", operator)
    with pytest.raises(KohortError, match="fenced"):
        driver._finish(cast("Any", operator), {})


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_request_that_an_ended_loop_does_not_start_is_closed(is_closed: bool) -> None:
    """Otherwise Python warns of a coroutine that was never awaited, which no user can explain."""

    async def never_started() -> dict[RegionPartition, int]:
        return {}

    def check() -> None:
        raise RegionError("the worker has ended")

    loop = asyncio.new_event_loop()
    if is_closed:
        loop.close()
    request = never_started()
    operator = cast("Any", object.__new__(region_driver._Operator))
    operator.error = RegionError("the worker has ended")
    operator._worker = SimpleNamespace(operating=SimpleNamespace(ends=lambda: request))
    operator._loop = loop
    operator._thread = threading.Thread(target=bool)
    operator._thread.start()
    with pytest.raises(RegionError, match="the worker has ended"):
        operator.ends(check)
    assert inspect.getcoroutinestate(request) == inspect.CORO_CLOSED
    loop.close()
