"""Consumers that are open when their event loop ends: they leave their groups anyway."""

from __future__ import annotations

import asyncio
import gc
import uuid
from typing import Literal, TypeAlias

import pytest

from kohort import AsyncConsumer
from kohort.client import AdminClient
from tests.broker.processes import eventually
from tests.client.programs.run import run
from tests.real_kafka.foreign import new_topic

GroupProtocol: TypeAlias = Literal["classic", "consumer"]
PROTOCOLS: tuple[GroupProtocol, ...] = ("classic", "consumer")
# Below the 45 s of a session, in which a dead member stays.
DEADLINE_S = 35


def members(bootstrap: str, group: str) -> int:
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        return len(admin.describe_groups([group])[group].members)


async def join(bootstrap: str, group: str, topic: str, protocol: GroupProtocol) -> AsyncConsumer:
    consumer = AsyncConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, group_protocol=protocol
    )
    while not consumer.assignment():
        await consumer.poll(100)
    return consumer


def is_left(bootstrap: str, group: str) -> None:
    eventually(lambda: members(bootstrap, group) == 0, f"{group} is left", DEADLINE_S)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_one_that_is_collected_after_its_loop_has_ended(
    bootstrap: str, protocol: GroupProtocol
) -> None:
    group = f"group-{uuid.uuid4().hex}"
    consumer = asyncio.run(join(bootstrap, group, new_topic(bootstrap), protocol))
    assert members(bootstrap, group) == 1
    del consumer
    gc.collect()
    is_left(bootstrap, group)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_that_is_open_at_the_end_of_the_process(
    bootstrap: str, protocol: GroupProtocol
) -> None:
    group = f"group-{uuid.uuid4().hex}"
    done = run("unclosed", bootstrap, group, new_topic(bootstrap), protocol)
    assert done.returncode == 1
    assert "ArithmeticError" in done.stderr
    assert "could not leave" not in done.stderr
    is_left(bootstrap, group)
