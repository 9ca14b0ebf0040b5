"""Looking at a region whose log cannot be followed, or whose brokers are away, ends by an error."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kohort.cli.region_views import last_of
from kohort.region import inspecting
from kohort.region.errors import NewerRecordError
from kohort.region.inspecting import RegionWaitError, ask, look, opened
from kohort.region.log.control import ControlLog
from kohort.region.machines.fold import fold_in
from kohort.region.machines.records import (
    Complete,
    Drain,
    Left,
    Published,
    RegionRecord,
    RegionSettings,
    Unclaim,
)
from kohort.region.machines.state import RegionState
from kohort.values import replace
from tests.region.test_gone import A, B, C, P, Q, checkpoint, registered, two

NEWER = "claim: format 3, this version knows 2 at most"


def never(*_: object) -> Awaitable[Any]:
    return asyncio.get_running_loop().create_future()


async def nothing(*_: object) -> None:
    pass


async def nine(*_: object) -> int:
    return 9


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> type[ControlLog]:
    """A log that ends at 9, of which nothing can be read."""
    for name, does in {"open": nothing, "_poll": never, "end": nine}.items():
        monkeypatch.setattr(ControlLog, name, does)
    monkeypatch.setattr(ControlLog, "_opened", lambda _: None)
    return ControlLog


async def watched(region: str, settings: dict[str, Any]) -> None:
    async with opened(region, settings) as log:
        await asyncio.sleep(0)
        await log.caught_up()


async def advanced(region: str, settings: dict[str, Any]) -> None:
    async with opened(region, settings) as log:
        await log.advanced()


async def identified(region: str, settings: dict[str, Any]) -> None:
    async with opened(region, settings) as log:
        await log.identified()


@pytest.mark.parametrize(
    "call",
    [look, lambda region, settings: ask(region, settings, "drain"), watched, advanced, identified],
)
def test_a_log_that_cannot_be_followed_is_an_error(
    control: type[ControlLog],
    call: Callable[[str, dict[str, Any]], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object) -> None:
        raise NewerRecordError(NEWER)

    monkeypatch.setattr(control, "_poll", refuse)

    async def play() -> None:
        looking = asyncio.ensure_future(call("r", {"bootstrap_servers": "127.0.0.1:1"}))
        done, _ = await asyncio.wait([looking], timeout=20)
        assert done, "it waits for ever"
        looking.result()

    with pytest.raises(NewerRecordError, match="format 3"):
        asyncio.run(play())


@pytest.mark.parametrize("waits_in", ["open", "_poll", "end"])
def test_the_time_of_a_wish_is_that_of_the_brokers_too(
    control: type[ControlLog], waits_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, waits_in, never)

    async def play() -> None:
        async with asyncio.timeout(20):
            await ask("r", {"bootstrap_servers": "127.0.0.1:1"}, "drain", timeout_s=0.01)

    with pytest.raises(RegionWaitError, match=r"within 0.01 s: its log could not be read"):
        asyncio.run(play())


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers that run under a number of their own."""

    def unknown() -> str:
        raise KeyError(f"getpwuid(): uid not found: {os.getuid()}")

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert cast("Any", inspecting).user() == str(os.getuid())


class Played:
    """A control log of two operators and a checkpoint, to which batches are added one by one."""

    def __init__(self, *later: list[RegionRecord]) -> None:
        self.state = RegionState()
        self._later = list(later)
        self._take([*two("g"), *checkpoint(1)])

    def _take(self, records: Sequence[RegionRecord]) -> None:
        for each in records:
            self.state, _ = fold_in(self.state, self.state.offset, each)

    async def caught_up(self) -> RegionState:
        return self.state

    async def append(self, records: Sequence[RegionRecord]) -> None:
        self._take(records)

    async def advanced(self) -> RegionState:
        if not self._later:
            await never()
        self._take(self._later.pop(0))
        return self.state


PUBLISHED: list[RegionRecord] = [Published(1, "c", 1, has_output=True)]
# Both give back what they have read nothing of, so that the checkpoint is of no operator.
RELEASED: list[RegionRecord] = [
    Unclaim(A, 4, frozenset({P})),
    Unclaim(B, 4, frozenset({Q})),
    Drain(1, "c", 2, 1),
]
LEFT: list[RegionRecord] = [Left(A, 5), Left(B, 5)]


def stopped(monkeypatch: pytest.MonkeyPatch, log: Played, timeout_s: float = 20) -> RegionState:
    @asynccontextmanager
    async def play(*_: object) -> AsyncIterator[Played]:
        yield log

    monkeypatch.setattr(inspecting, "opened", play)
    return asyncio.run(ask("r", {"bootstrap_servers": ""}, "stop", timeout_s=timeout_s))


def test_a_stop_waits_for_a_checkpoint_that_becomes_complete_after_the_last_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    completed: list[RegionRecord] = [Complete(1, "c", 2, 1)]
    published: list[RegionRecord] = [Published(1, "c", 2)]
    log = Played(RELEASED, LEFT, PUBLISHED, completed, published)
    state = stopped(monkeypatch, log)
    assert (state.completed, state.unpublished) == (2, ())
    assert last_of(state) == "checkpoint 2 is the last"


def test_a_stop_waits_until_the_last_checkpoint_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    state = stopped(monkeypatch, Played(RELEASED[:2], LEFT, PUBLISHED))
    assert (state.completed, state.unpublished) == (1, ())


@pytest.mark.parametrize("timeout_s", [0.01, 20])
def test_a_stop_says_that_no_controller_is_left_to_publish(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float
) -> None:
    """After the time for which controllers wait, or that of the command if that is shorter."""
    log = Played(RELEASED[:2], LEFT)
    settings = RegionSettings(group_id="g", drain_timeout_ms=10)
    log.state = replace(log.state, settings=settings if timeout_s > 1 else log.state.settings)
    state = stopped(monkeypatch, log, timeout_s)
    assert last_of(state) == (
        "checkpoint 1 is the last, and its output is not visible yet: the next controller "
        "publishes it (kohort region start runs one)"
    )


def test_a_stop_ends_when_the_next_operator_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Played(RELEASED[:2], LEFT, [registered(C, 18)])
    state = stopped(monkeypatch, log)
    assert (state.completed, dict(state.operators)) == (1, {})
