"""The state of an application over HTTP: every instance is asked, and the owner answers."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec import structs

from kohort import AsyncProducer
from kohort.errors import ConfigError
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings
from tests.streams.flights import (
    PARTITIONS,
    PLANES,
    WAIT_S,
    Fleet,
    in_time,
    model,
    some_flights,
)
from tests.streams.test_applications import SETTINGS, TASKS, Running, running

SERVED = structs.replace(SETTINGS, query_listen="127.0.0.1:0")
TOKEN = "a token of some length"


class Answer:
    """What a server said."""

    def __init__(self, status: int, body: bytes, url: str) -> None:
        self.status = status
        self.said: dict[str, Any] = json.loads(body)
        self.url = url


def get(url: str, headers: dict[str, str]) -> Answer:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as found:
            return Answer(found.status, found.read(), found.url)
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read(), url)


async def asked(one: Running, path: str, token: str = "", host: str = "", **query: Any) -> Answer:
    """Ask an instance, and go where it sends; from another thread."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"Host": host} if host else {}
    url = f"{one.instance.url}{path}?{urlencode(query)}"
    return await asyncio.to_thread(get, url, headers)


def has_value_at(value: int, url: str, answer: Answer) -> bool:
    """Whether the instance at `url` answers by itself; one that is restoring sends on."""
    return bool(answer.said.get("value") == value) and answer.url.startswith(url)


async def until(
    is_there: Callable[[Answer], bool], one: Running, path: str, **query: Any
) -> Answer:
    """Ask until the answer is the right one: what others say is heard a little later."""
    found = await asked(one, path, **query)
    async with in_time(lambda: (path, query, found.status, found.said)):
        while not is_there(found):
            found = await asked(one, path, **query)
    return found


async def fed(fleet: Fleet) -> None:
    await fleet.send_planes()
    async with AsyncProducer(bootstrap_servers=fleet.address) as producer:
        await fleet.send(producer, some_flights(100, 1))


def test_every_instance_answers_for_every_key(servers: str) -> None:
    asyncio.run(_every_key(Fleet(servers)))


async def _every_key(fleet: Fleet) -> None:
    await fed(fleet)
    async with running(fleet, settings=SERVED) as first, running(fleet, settings=SERVED) as second:
        await first.until(TASKS // 2)
        await second.until(TASKS // 2)
        await fleet.check_exact()
        totals, hourly = model(fleet.sent)
        for one in (first, second):
            owners = set()
            for plane in PLANES:
                found = await until(
                    lambda each: each.status == 200, one, "/stores/total", key=plane
                )
                assert found.said["value"] == totals.get(plane)
                assert (found.said["role"], found.said["lag"]) == ("owner", 0)
                owners.add(found.said["member"])
                assert found.url.startswith(
                    first.instance.url
                    if found.said["member"] == first.instance.member_id
                    else second.instance.url
                )
            for (maker, start), count in hourly.items():
                window = {"key": maker, "start_ms": start}
                found = await until(
                    lambda each: each.status == 200, one, "/stores/flights", **window
                )
                assert found.said["value"] == count
                owners.add(found.said["member"])
            assert owners == {first.instance.member_id, second.instance.member_id}
        await _wrong_queries(first)


async def _wrong_queries(one: Running) -> None:
    key = base64.b64encode(b"N001").decode()
    assert (await asked(one, "/stores/aircraft", key_base64=key)).status == 200
    for path, query, status, said in (
        (
            "/stores/nothing",
            {"key": "x"},
            404,
            "no store 'nothing'; it has aircraft, flights, total",
        ),
        ("/stores/total", {}, 400, "give the key as `key=...`"),
        ("/stores/total", {"key": "a", "key_base64": key}, 400, "give the key as `key=...`"),
        ("/stores/total", {"key_base64": "!"}, 400, "not a key of serde str"),
        ("/stores/total", {"key": "N001", "stale": "yes"}, 400, "neither true nor false"),
        ("/stores/total", {"key": "x" * 65_537}, 400, "longer than 65536"),
        ("/stores/flights", {"key": "BOEING"}, 400, "give start_ms"),
        ("/stores/flights", {"key": "BOEING", "start_ms": "-1"}, 400, "give start_ms"),
    ):
        found = await asked(one, path, **query)
        assert found.status == status, path
        assert said in found.said["error"]
    refused = await asked(one, "/", host="elsewhere.example")
    assert refused.status == 421
    about = (await asked(one, "/")).said
    assert about["stores"] == ["aircraft", "flights", "total"]
    assert about["member"] == one.instance.member_id


def test_a_standby_answers_when_it_may(servers: str) -> None:
    asyncio.run(_standby(Fleet(servers)))


async def _standby(fleet: Fleet) -> None:
    learners = LearnerSettings(max_warmup_learners=None, num_standby_replicas=1)
    settings = structs.replace(SERVED, learners=learners)
    await fed(fleet)
    async with running(fleet, settings=settings) as one, running(fleet, settings=settings) as two:
        await fleet.check_exact()
        totals, _ = model(fleet.sent)
        roles = set()
        for plane, total in totals.items():
            for each in (one, two):
                here = partial(has_value_at, total, each.instance.url)
                found = await until(here, each, "/stores/total", key=plane, stale="true")
                roles.add((each.instance.member_id == found.said["member"], found.said["role"]))
        assert roles == {(True, "owner"), (True, "follower")}


def test_a_token_is_needed_where_one_is_given(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    asyncio.run(_with_token(Fleet(servers), file))


async def _with_token(fleet: Fleet, file: Path) -> None:
    settings = structs.replace(SERVED, query_token_file=file)
    async with running(fleet, settings=settings) as one:
        await one.until(TASKS)
        path = "/stores/total"
        for token in ("", "another token, just as long"):
            assert (await asked(one, path, token, key="N001")).status == 401
        found = await asked(one, path, TOKEN, host="any.example", key="N001")
        assert (found.status, found.said["value"]) == (200, None)


def test_an_owner_that_serves_nothing_is_said(embedded: Any) -> None:
    asyncio.run(_owner_without(Fleet(embedded.bootstrap_servers)))


async def _owner_without(fleet: Fleet) -> None:
    async with running(fleet) as silent:
        await silent.until(TASKS)
        async with running(fleet, settings=SERVED) as one:
            await one.until(PARTITIONS, Role.RUNNING)
            answers = [await asked(one, "/stores/total", key=plane) for plane in PLANES]
    refused = [each.said["error"] for each in answers if each.status == 503]
    assert refused
    assert all("does not process now" in each for each in refused)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"query_listen": "8080"}, 'is not "host:port"'),
        ({"query_listen": "localhost:http"}, 'is not "host:port"'),
        ({"query_listen": "localhost:99999"}, 'is not "host:port"'),
        ({"query_url": "here"}, "is not an address such as"),
    ],
)
def test_wrong_settings_are_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        StreamSettings(**given)  # type: ignore[arg-type]  # each is a text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (StreamSettings(query_listen="0.0.0.0:0"), "give query_token_file"),
        (StreamSettings(query_listen="0.0.0.0:0", query_token_file="/nowhere"), "cannot be read"),
    ],
)
def test_an_address_that_may_not_be_served_ends_the_start(
    embedded: Any, settings: StreamSettings, said: str
) -> None:
    fleet = Fleet(embedded.bootstrap_servers)
    instance = fleet.app().instance(
        bootstrap_servers=fleet.address, store="memory", settings=settings
    )
    with pytest.raises(ConfigError, match=said):
        asyncio.run(instance.run())


def test_an_address_in_use_or_unknown_to_others_ends_the_start(
    embedded: Any, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    fleet = Fleet(embedded.bootstrap_servers)
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        for settings, said in (
            (StreamSettings(query_listen=listen), "cannot listen on"),
            (
                StreamSettings(query_listen="0.0.0.0:0", query_token_file=file),
                "other hosts cannot use the address",
            ),
        ):
            instance = fleet.app().instance(
                bootstrap_servers=fleet.address, store="memory", settings=settings
            )
            with pytest.raises(ConfigError, match=said):
                asyncio.run(instance.run())
