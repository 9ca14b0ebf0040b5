"""A close on the caller's loop is cancelled: it continues, and the next one takes over."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from kohort import AsyncConsumer, Producer, RebalanceListener, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.client import AsyncAdminClient
from kohort.client.consumer import listener as listeners
from tests.client.loops import on_a_loop

TURNS = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55]
Protocol: TypeAlias = Literal["classic", "consumer"]
PROTOCOLS: list[Protocol] = ["classic", "consumer"]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number, partition=0)
    return name


class Told(RebalanceListener):
    """Counts revocations, and raises then if asked to."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.count = 0
        self._error = error

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> None:
        self.count += 1
        if self._error is not None:
            raise self._error


async def member(
    bootstrap: str, topic: str, protocol: Protocol, listener: RebalanceListener
) -> AsyncConsumer:
    """A member of a group that has read all records."""
    consumer = AsyncConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"group-of-{topic}",
        group_protocol=protocol,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([topic], listener=listener)
    read = 0
    while read < 10:
        read += sum(map(len, (await consumer.poll(1_000)).values()))
    return consumer


async def cut(close: Callable[[], Coroutine[object, object, None]], turns: int) -> None:
    """Cancel a close after this many turns of the loop."""
    closing = asyncio.create_task(close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing


def alone() -> bool:
    """Whether no task of a client runs any longer, only the test's."""
    return len(asyncio.all_tasks()) == 1


async def left(bootstrap: str, topic: str) -> bool:
    """Whether the group has no members, and all read offsets are stored."""
    group = f"group-of-{topic}"
    async with AsyncAdminClient(bootstrap_servers=bootstrap) as client:
        members = (await client.describe_groups([group]))[group].members
        stored = (await client.list_group_offsets(group)).get(TopicPartition(topic, 0))
    return not members and stored is not None and stored.offset == 10


async def eventually_left(bootstrap: str, topic: str) -> bool:
    async with asyncio.timeout(20):
        while not await left(bootstrap, topic):
            pass
    return True


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@on_a_loop
async def test_a_second_close_goes_on(
    bootstrap: str,
    topic: str,
    protocol: Protocol,
    turns: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = Told()
    consumer = await member(bootstrap, topic, protocol, listener)
    caplog.clear()
    await cut(consumer.close, turns)
    await consumer.close()
    assert await left(bootstrap, topic)
    assert listener.count == 1
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
    assert alone()


@pytest.mark.parametrize("turns", [1, 5, 20])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@on_a_loop
async def test_the_member_leaves_without_a_second_close(
    bootstrap: str, topic: str, protocol: Protocol, turns: int
) -> None:
    consumer = await member(bootstrap, topic, protocol, Told())
    await cut(consumer.close, turns)
    assert await eventually_left(bootstrap, topic)
    await consumer.close()


@on_a_loop
async def test_a_second_close_may_have_less_time(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Slow(RebalanceListener):
        def on_partitions_revoked(self, partitions: frozenset[TopicPartition], /) -> listeners.Told:
            return never

    consumer = await member(bootstrap, topic, "classic", Slow())
    await cut(consumer.close, 5)
    await consumer.close(timeout_s=0.05)
    assert "could not be left in time" in caplog.text
    assert alone()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
@on_a_loop
async def test_what_a_listener_raises_comes_out_of_the_close_that_is_awaited(
    bootstrap: str, topic: str, error: BaseException
) -> None:
    consumer = await member(bootstrap, topic, "classic", Told(error))
    await cut(consumer.close, 0)
    with pytest.raises(type(error)):
        await consumer.close()
    await consumer.close()


@on_a_loop
async def test_what_a_listener_raises_is_logged_when_nobody_waits(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = await member(bootstrap, topic, "classic", Told(ValueError("no")))
    await cut(consumer.close, 1)
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=20)
    assert "could not be closed cleanly: no" in caplog.text
    assert alone()


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@on_a_loop
async def test_an_admin_client(bootstrap: str, turns: int) -> None:
    client = AsyncAdminClient(bootstrap_servers=bootstrap)
    await client.list_topics()
    await cut(client.close, turns)
    await client.close()
    assert alone()
