"""Instances of a stream application come, learn, take over and go, on both brokers."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from kohort import AsyncProducer
from kohort.group.member.classic.session import ClassicMemberState
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import TaskFailedError
from kohort.streams.events import (
    StateRestored,
    TaskFailed,
    TaskReleased,
    TasksChanged,
    TaskStarted,
)
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings
from kohort.types import TopicPartition
from tests.streams.counting import POISON, WAIT_S, Running, running
from tests.streams.feeding import TASKS, Case

SETTINGS = StreamSettings(
    commit_interval_ms=100,
    lag_interval_ms=100,
    learners=LearnerSettings(max_warmup_learners=None),
)
pytestmark = pytest.mark.timeout(240)


def runs(one: Running, count: int) -> bool:
    return list(one.instance.tasks.values()).count(Role.RUNNING) == count


def started(one: Running) -> list[TaskStarted]:
    return [each for each in one.events if isinstance(each, TaskStarted)]


def learned_before(one: Running, task: Task) -> bool:
    """Whether the instance learned a task before it was granted it."""
    plans = [each for each in one.events if isinstance(each, TasksChanged)]
    granted = next(n for n, plan in enumerate(plans) if task in plan.active)
    return any(task in plan.learning for plan in plans[:granted])


def test_tasks_move_through_learners_and_every_record_counts_once(servers: str) -> None:
    asyncio.run(_scale_out_and_in(Case(servers)))


async def _scale_out_and_in(case: Case) -> None:
    application = case.application()
    async with case.fed(), running(application, case.address, SETTINGS) as first:
        await first.until(lambda: runs(first, TASKS))
        async with running(application, case.address, SETTINGS) as second:
            await second.until(lambda: runs(second, TASKS // 2) and runs(first, TASKS // 2))
            for each in started(second):
                assert learned_before(second, each.task)
                assert each.unavailable_ms is not None
                assert each.owner == first.instance.member_id
            assert {each.task for each in first.of(TaskReleased)} == {
                each.task for each in started(second)
            }
            first.instance.leave_soon()
            async with asyncio.timeout(90):
                await first.job
            await second.until(lambda: runs(second, TASKS))
            assert all(learned_before(second, each.task) for each in started(second))
            await case.counts()
            await second.stop()
            assert not second.of(TaskFailed)
        async with running(application, case.address, SETTINGS):
            await case.counts()
    async with running(application, case.address, SETTINGS):
        await case.check_exact()


def test_an_instance_that_just_stops_loses_nothing(servers: str) -> None:
    asyncio.run(_stop_one(Case(servers)))


async def _stop_one(case: Case) -> None:
    application = case.application()
    async with case.fed(), running(application, case.address, SETTINGS) as first:
        await first.until(lambda: runs(first, TASKS))
        async with running(application, case.address, SETTINGS) as second:
            await second.until(lambda: runs(second, TASKS // 2))
        await first.until(lambda: runs(first, TASKS))
    async with running(application, case.address, SETTINGS):
        await case.check_exact()


def test_an_instance_that_stops_while_its_group_waits_repeats_nothing(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_stop_while_the_group_waits(Case(servers), monkeypatch))


async def _stop_while_the_group_waits(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another instance takes long to say what it has, so the group waits for it to join."""
    application = case.application()
    may_join = threading.Event()
    async with (
        case.fed(),
        running(application, case.address, SETTINGS) as first,
        running(application, case.address, SETTINGS) as second,
    ):
        await second.until(lambda: runs(second, TASKS // 2) and runs(first, TASKS // 2))
        await first.until(lambda: is_in(first, ClassicMemberState.STABLE))
        assert second.instance._owning is not None
        assignor = second.instance._owning.assignor
        say = assignor.subscription_user_data

        def say_late(topics: frozenset[str]) -> bytes | None:
            assert may_join.wait(WAIT_S)
            return say(topics)

        monkeypatch.setattr(assignor, "subscription_user_data", say_late)
        try:
            consumer: Any = first.instance._consumer
            consumer.enforce_rebalance("to have one")
            await first.until(lambda: is_in(first, ClassicMemberState.PREPARING_REBALANCE))
            await first.until(lambda: len(committed_of(first)) == TASKS // 2)
            before = committed_of(first)
            await first.until(lambda: all(now > then for now, then in pairs(first, before)))
            assert is_in(first, ClassicMemberState.PREPARING_REBALANCE)
            first.instance.stop()
        finally:
            may_join.set()
        await first.stop()
    async with running(application, case.address, SETTINGS):
        await case.check_exact()


def is_in(one: Running, state: ClassicMemberState) -> bool:
    """Whether the member of an instance is in a state."""
    consumer: Any = one.instance._consumer
    return consumer._core.membership.member.state is state


def committed_of(one: Running) -> dict[TopicPartition, int]:
    """Return what an instance has committed of the tasks that it processes."""
    owning = one.instance._owning
    assert owning is not None
    tasks = owning.in_role(Role.RUNNING)
    return {place: at for each in tasks for place, at in each.committed.items()}


def pairs(one: Running, before: dict[TopicPartition, int]) -> list[tuple[int, int]]:
    """Return what is committed of each partition now, and what was before."""
    now = committed_of(one)
    return [(now[place], at) for place, at in before.items()]


def test_state_on_disk_is_not_replayed_again(servers: str, tmp_path: Path) -> None:
    asyncio.run(_restart(Case(servers), tmp_path))


async def _restart(case: Case, folder: Path) -> None:
    application = case.application(folder)
    async with AsyncProducer(bootstrap_servers=case.address) as producer:
        await case.send(producer, 400)
        async with running(application, case.address, SETTINGS):
            await case.check_exact()
        await case.send(producer, 400)
        async with running(application, case.address, SETTINGS) as again:
            await case.check_exact()
            restored = [each for each in again.events if isinstance(each, StateRestored)]
            assert len(restored) == TASKS
            assert sum(each.records for each in restored) == 0


def test_a_task_that_raises_stands_still_alone(servers: str) -> None:
    asyncio.run(_poisoned(Case(servers)))


async def _poisoned(case: Case) -> None:
    application = case.application()
    async with AsyncProducer(bootstrap_servers=case.address) as producer:
        await case.send(producer, 100)
        one = Running(application, case.address, SETTINGS)
        await one.until(lambda: runs(one, TASKS))
        await case.counts()
        _ = await producer.send(case.input, POISON, b"key-0", partition=0)
        await producer.flush()
        await one.until(lambda: one.of(TaskFailed) != [])
        assert one.instance.tasks[Task(0, 0)] is Role.FAILED
        assert runs(one, TASKS - 1)
        _ = await producer.send(case.input, b"x", b"another", partition=1)
        case.sent[b"another"] += 1
        await case.check_exact()
        one.instance.stop()
        with pytest.raises(TaskFailedError, match=r"tasks 0_0 .* ValueError: poison") as caught:
            await one.job
        assert isinstance(caught.value.__cause__, ValueError)
