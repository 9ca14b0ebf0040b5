"""An owner lets a task go: what it says of that, and what is left of the task if it comes back."""

from __future__ import annotations

import asyncio

import pytest

from kohort.streams import App
from kohort.streams.assignment.tasks import Task
from kohort.streams.events import TaskReleased
from kohort.streams.log.records import Released
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings
from kohort.types import TopicPartition
from tests.streams.stubs import Stand, record, until

INPUT, TASK = TopicPartition("in", 0), Task(0, 0)


def counting() -> App:
    """Return a program that counts."""
    app = App("a")
    app.topic("in", key=str, value=str).count(name="n")
    return app


def test_a_released_task_that_comes_back_has_none_of_the_records_that_it_had_buffered() -> None:
    """Another owner may have processed them meanwhile; what it has not is read again."""
    asyncio.run(_comes_back())


async def _comes_back() -> None:
    async with Stand(counting(), [INPUT], settings=StreamSettings(process_budget=1)) as stand:
        before = stand.run(TASK)
        before.work.add(INPUT, [record(INPUT, offset) for offset in range(3)])
        await stand.process()
        await stand.revoke()
        assert before.role is Role.RELEASED
        stand.owning._grant(TASK)
        held = stand.owning.held[TASK]
        await until(lambda: held.job is None)
        await stand.step()
        assert dict(held.work.positions()) == {}
        stand.consumer.found = {INPUT: [record(INPUT, 2)]}  # another owner has processed offset 1
        await stand.step()
        await stand.commit()
        assert held.role is Role.RUNNING
        assert stand.consumer.offsets == {INPUT: 3}


def test_a_task_that_is_stopped_processes_nothing_more_before_its_last_commit() -> None:
    asyncio.run(_stopped())


async def _stopped() -> None:
    async with Stand(counting(), [INPUT], settings=StreamSettings(process_budget=1)) as stand:
        held = stand.run(TASK)
        held.work.add(INPUT, [record(INPUT, offset) for offset in range(3)])
        await stand.process()
        stopped = stand.owning.stop_tasks(frozenset({INPUT}))
        await stand.process()
        await stand.owning.release(stopped)
        assert stand.consumer.offsets == {INPUT: 1}


def test_a_task_is_unavailable_from_its_last_record_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that the last commit takes belongs to it."""
    asyncio.run(_stopped_before_its_commit(monkeypatch))


async def _stopped_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stand(counting(), [INPUT]) as stand:
        monkeypatch.setattr("kohort.streams.runtime.owning.now_ms", lambda: 1_000)
        monkeypatch.setattr("kohort.streams.runtime.reports.now_ms", lambda: 1_000)
        stand.run(TASK).work.add(INPUT, [record(INPUT, 0)])
        await stand.process()
        stopped = stand.owning.stop_tasks(frozenset({INPUT}))
        monkeypatch.setattr("kohort.streams.runtime.owning.now_ms", lambda: 9_000)
        monkeypatch.setattr("kohort.streams.runtime.reports.now_ms", lambda: 9_000)
        await stand.owning.release(stopped)
        assert [each.at for each in stand.control.said if isinstance(each, Released)] == [1_000]
        told = [each for each in stand.events if isinstance(each, TaskReleased)]
        assert [(each.stopped_at, each.at) for each in told] == [(1_000, 9_000)]
