"""Instances that are cancelled under load, and whose input topic is made anew, on both brokers."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient
from msgspec import structs

from kohort import AsyncProducer
from kohort.region.settings import producer_settings
from kohort.streams import App
from kohort.streams.app.application import application_of
from kohort.streams.assignment.member import TaskMemberState
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import TaskFailedError
from kohort.streams.events import TaskFailed
from kohort.streams.runtime import running as instances
from kohort.streams.runtime.holding import Role
from tests.real_kafka.foreign import TIMEOUT_S, create_topic
from tests.streams.counting import WAIT_S, Running, running
from tests.streams.feeding import TASKS, Case
from tests.streams.runtime.test_running import SETTINGS, runs
from tests.streams.stubs import until

pytestmark = pytest.mark.timeout(240)
# So little room that the producer nearly always waits for it.
_BUFFER = 16_384


def test_an_instance_that_is_cancelled_again_and_again_loses_nothing(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"buffer_memory": _BUFFER, "batch_size": 1_024}
    monkeypatch.setattr(
        instances, "producer_settings", lambda clients: producer_settings(clients) | small
    )
    asyncio.run(_cancelled(Case(servers)))


async def _cancelled(case: Case) -> None:
    application = case.application()
    async with AsyncProducer(bootstrap_servers=case.address) as producer:
        for _ in range(4):
            one = Running(application, case.address, SETTINGS)
            await one.until(partial(runs, one, TASKS))
            feeding = asyncio.create_task(case.send(producer, 4_000))
            await until(partial(waits_for_room, one))
            one.job.cancel()
            async with asyncio.timeout(WAIT_S):
                await asyncio.wait([one.job, feeding])
            assert one.job.cancelled()
    async with running(application, case.address, SETTINGS):
        await case.check_at_least_once()


def waits_for_room(one: Running) -> bool:
    """Whether a task of an instance is in the middle of sending what it wrote."""
    owning = one.instance._owning
    return owning is not None and any(not each.is_idle.is_set() for each in owning.held.values())


class Two:
    """A part that counts, and one without state."""

    def __init__(self, address: str) -> None:
        self.address = address
        name = f"app-{uuid.uuid4().hex[:10]}"
        self.counted, self.plain, self.out = (
            create_topic(address, f"{name}-{each}", 1) for each in ("in", "plain", "out")
        )
        app = App(name)
        app.topic(self.counted, key=str, value=str).count(name="n")
        app.topic(self.plain, key=str, value=str).to(self.out)
        self.application = application_of(app.build(), None)

    async def send(self, topic: str, count: int) -> None:
        async with AsyncProducer(bootstrap_servers=self.address) as producer:
            for _ in range(count):
                _ = await producer.send(topic, b"x", b"k")

    def make_anew(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.delete_topics([self.counted])[self.counted].result(TIMEOUT_S)
        create_topic(self.address, self.counted, 1)


def position(one: Running, task: Task) -> int:
    """Return how many records of its input a task has processed."""
    work = one.instance.running_task(task)
    return 0 if work is None else max(work.positions().values(), default=0)


def test_an_input_that_is_made_anew_fails_its_task_alone(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(_made_anew(Two(servers)))
    assert any("kohort streams reset app-" in each for each in caplog.text.splitlines())


async def _made_anew(two: Two) -> None:
    one = Running(two.application, two.address, SETTINGS)
    counting, plain = Task(0, 0), Task(1, 0)
    await two.send(two.counted, 50)
    await one.until(lambda: position(one, counting) == 50)
    two.make_anew()
    await two.send(two.counted, 10)
    await one.until(lambda: any(each.task == counting for each in one.of(TaskFailed)))
    await two.send(two.plain, 5)
    await one.until(lambda: position(one, plain) == 5)
    assert one.instance.tasks[plain] is Role.RUNNING
    one.instance.stop()
    with pytest.raises(TaskFailedError, match="task"):
        await one.job


def joins(one: Running) -> bool:
    """Whether a rebalance is under way that the instance takes part in."""
    owning = one.instance._owning
    return owning is not None and owning.assignor.session.state is TaskMemberState.JOINING


def test_an_instance_that_is_stopped_in_a_rebalance_repeats_nothing(servers: str) -> None:
    asyncio.run(_stopped_in_a_rebalance(Case(servers)))


async def _stopped_in_a_rebalance(case: Case) -> None:
    application = case.application()
    rarely = structs.replace(SETTINGS, commit_interval_ms=600_000)
    async with case.fed(), running(application, case.address, SETTINGS) as last:
        for _ in range(3):
            async with running(application, case.address, rarely) as first:
                await first.until(partial(runs, first, TASKS // 2))
                await until(partial(any_is_dirty, first))
                async with running(application, case.address, SETTINGS):
                    await until(partial(joins, first))
                    await first.stop()
            await last.until(partial(runs, last, TASKS))
    async with running(application, case.address, SETTINGS):
        await case.check_exact()


def any_is_dirty(one: Running) -> bool:
    """Whether it has processed something that is not committed."""
    owning = one.instance._owning
    return owning is not None and any(each.is_dirty for each in owning.held.values())
