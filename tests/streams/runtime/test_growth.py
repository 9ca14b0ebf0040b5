"""Input topics that are given more partitions while instances run."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from kohort import AdminClient, AsyncConsumer, AsyncProducer, TopicPartition
from kohort.streams import App
from kohort.streams.app.application import application_of
from kohort.streams.assignment.tasks import SubTopology, Task, Topology
from kohort.streams.errors import InternalTopicError, NotCoPartitionedError, TaskFailedError
from kohort.streams.runtime import growth
from kohort.streams.runtime.holding import Role
from kohort.streams.runtime.interface import Application
from kohort.streams.topics import unfit, unread
from tests.real_kafka.foreign import create_topic
from tests.streams.counting import WAIT_S, Running
from tests.streams.runtime.test_running import SETTINGS
from tests.streams.stubs import Stand

pytestmark = pytest.mark.timeout(240)
PARTS = [
    SubTopology(("a", "b")),
    SubTopology(("c",)),
    SubTopology(("d", "e"), is_stateful=False),
]
BEFORE = dict.fromkeys("abcde", 4)


def application() -> Application:
    def make_task(*_: object) -> Any:
        raise NotImplementedError

    return Application(name="app", topology=Topology(PARTS), make_task=make_task)


@pytest.mark.parametrize(
    ("grown", "planned"),
    [
        ({}, {}),
        ({"a": 5}, {}),
        ({"a": 5, "b": 6, "c": 8}, {}),
        ({"d": 6}, {}),
        ({"d": 6, "e": 5}, {"d": 5, "e": 5}),
        ({"d": 6, "e": 6}, {"d": 6, "e": 6}),
        ({"a": 2, "c": 3}, {"a": 2, "b": 2, "c": 3}),
        ({"a": 0, "e": 0}, {"a": 0, "b": 0, "d": 0, "e": 0}),
    ],
)
def test_parts_with_state_keep_their_tasks(
    grown: dict[str, int], planned: Mapping[str, int]
) -> None:
    assert Topology(PARTS).steady(BEFORE, BEFORE | grown) == {**BEFORE, **planned}


@pytest.mark.parametrize(
    ("grown", "errors", "passed_over"),
    [
        ({}, {}, []),
        ({"a": 5}, {0: NotCoPartitionedError}, []),
        ({"a": 5, "b": 5}, {0: InternalTopicError}, []),
        ({"c": 8}, {1: InternalTopicError}, []),
        ({"d": 6, "e": 5}, {}, ["d-5"]),
        ({"d": 6, "e": 6}, {}, []),
    ],
)
def test_what_cannot_go_on(
    grown: dict[str, int], errors: Mapping[int, type], passed_over: list[str]
) -> None:
    now = BEFORE | grown
    found = unfit(application(), BEFORE, now)
    assert {number: type(each) for number, each in found.items()} == errors
    assert unread(application(), now) == passed_over


def test_what_is_granted_later_stands_still_as_well() -> None:
    async def granted() -> None:
        app = App("a")
        app.topic("in", key=str, value=str).count(name="n")
        place = TopicPartition("in", 0)
        async with Stand(app, [place]) as stand:
            stand.owning.refuse({0: InternalTopicError("it has more partitions")})
            stand.owning._grant(Task(0, 0))
            assert stand.owning.held[Task(0, 0)].role is Role.FAILED
            assert place in stand.consumer.paused

    asyncio.run(granted())


class Case:
    """A part that joins and counts, and one without state."""

    def __init__(self, address: str) -> None:
        self.address = address
        name = f"app-{uuid.uuid4().hex[:10]}"
        self.counted, self.table, self.plain, self.out = (
            create_topic(address, f"{name}-{each}", 2) for each in ("in", "table", "plain", "out")
        )
        app = App(name)
        table = app.topic(self.table, key=str, value=str).table(name="table")
        records = app.topic(self.counted, key=str, value=str)
        records.join(table, lambda _, name: name, value=str).count(name="n")
        app.topic(self.plain, key=str, value=str).to(self.out)
        self.application = application_of(app.build(), None)

    def grow(self, *topics: str) -> None:
        with AdminClient(bootstrap_servers=self.address) as admin:
            admin.create_partitions(dict.fromkeys(topics, 3))

    async def passes_through(self, partition: int) -> None:
        """Send a record through the part without state."""
        places = [TopicPartition(self.out, number) for number in range(2)]
        key = b"key-%d" % partition
        async with (
            AsyncProducer(bootstrap_servers=self.address) as producer,
            AsyncConsumer(bootstrap_servers=self.address) as consumer,
            asyncio.timeout(WAIT_S),
        ):
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            _ = await producer.send(self.plain, b"x", key, partition=partition)
            await producer.flush()
            keys: set[bytes | None] = set()
            while key not in keys:
                found = await consumer.poll(1_000)
                keys.update(each.key for records in found.values() for each in records)


@pytest.mark.parametrize("is_joined_alike", [True, False])
def test_a_part_with_state_stands_still_and_others_go_on(
    servers: str, is_joined_alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "_LOOK_S", 0.2)
    asyncio.run(_stands_still(Case(servers), is_joined_alike))


async def _stands_still(case: Case, is_joined_alike: bool) -> None:
    one = Running(case.application, case.address, SETTINGS)
    tasks = [Task(part, number) for part in (0, 1) for number in (0, 1)]
    await one.until(lambda: all(one.instance.tasks.get(each) is Role.RUNNING for each in tasks))
    case.grow(case.counted, case.plain, *([case.table] if is_joined_alike else []))
    await one.until(lambda: all(one.instance.tasks[t] is Role.FAILED for t in tasks[:2]))
    await one.until(lambda: one.instance.tasks.get(Task(1, 2)) is Role.RUNNING)
    for partition in range(3):
        await case.passes_through(partition)
    assert Task(0, 2) not in one.instance.tasks
    one.instance.stop()
    says = "had 2 and has 3" if is_joined_alike else "must have the same number of partitions"
    with pytest.raises(TaskFailedError, match=says):
        await one.job
