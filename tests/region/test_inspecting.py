"""Looking at a region whose log cannot be followed, or whose brokers are away, ends by an error."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from kohort.region import inspecting
from kohort.region.errors import NewerRecordError
from kohort.region.inspecting import RegionWaitError, ask, look, opened
from kohort.region.log.control import ControlLog

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
