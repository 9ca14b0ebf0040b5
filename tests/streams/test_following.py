"""Learners and standbys whose replay fails, or that are granted their task in the middle of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa
import pytest
from immutables import Map

from kohort.streams import App
from kohort.streams.assignment.member import LagMeasured, TaskMemberState, TaskSession
from kohort.streams.assignment.metadata import Instructions
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import InternalTopicError, StateDiskFullError
from kohort.streams.events import TaskFailed
from kohort.streams.runtime.holding import Held, Role
from kohort.types import TopicPartition
from tests.streams.stubs import WAIT_S, Stand, until

INPUT, TASK = TopicPartition("in", 0), Task(0, 0)
CHANGELOG = "a-n-changelog"


def stand_of(*assigned: TopicPartition) -> Stand:
    """Return an instance of a program that counts."""
    app = App("a")
    app.topic("in", key=str, value=str).count(name="n")
    return Stand(app, assigned)


def run(work: Coroutine[object, object, None]) -> None:
    """Run a test on a loop."""

    async def limited() -> None:
        async with asyncio.timeout(WAIT_S):
            await work

    asyncio.run(limited())


def batch(keys: list[bytes | None], partition: int = 0) -> pa.RecordBatch:
    """Return records of a changelog."""
    count = len(keys)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([CHANGELOG] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([b"v"] * count, pa.binary()),
        }
    )


async def followed(stand: Stand) -> Held:
    """Have the instance follow the task as a standby, as its leader says."""
    session = TaskSession(
        state=TaskMemberState.RUNNING, instructions=Instructions(standbys=frozenset({TASK}))
    )
    stand.assignor._member.session = session  # no group plans here
    stand.owning.reconcile()
    held = stand.owning.held[TASK]
    await until(lambda: held.job is None)
    return held


def full(*_: object) -> None:
    """Write to a disk that is full."""
    raise StateDiskFullError("store n cannot be written: No space left on device")


@pytest.mark.parametrize("what", ["full disk", "no key"])
def test_a_standby_whose_replay_fails_fails_alone_and_begins_anew(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(_fails_alone(what))
    (told,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "task 0_0 cannot be learned or followed here" in told.getMessage()


async def _fails_alone(what: str) -> None:
    async with stand_of() as stand:
        held = await followed(stand)
        store: Any = held.work.stores["n"]
        if what == "full disk":
            store.restore = full
        stand.restorer._take(batch([b"k" if what == "full disk" else None]))  # as a poll would
        kind = StateDiskFullError if what == "full disk" else InternalTopicError
        assert isinstance(held.error, kind)
        (event,) = [each for each in stand.events if isinstance(each, TaskFailed)]
        assert event.error is held.error
        assert dict(stand.owning.lags()) == {TASK: None}
        assert (
            stand.owning.reports.failures == {}
        )  # its owner goes on, and nothing of its input is missing
        stand.owning.reconcile()
        again = stand.owning.held[TASK]
        assert again is not held
        assert again.error is None
        assert again.role is Role.FOLLOWING
        assert stand.control.said == []  # the last word about the task is its owner's


def test_state_in_memory_is_claimed_no_longer_once_the_task_is_given_up() -> None:
    run(_gone_with_its_task())


async def _gone_with_its_task() -> None:
    async with stand_of() as stand:
        session = TaskSession(state=TaskMemberState.RUNNING, dormant=Map({TASK: 0}))
        stand.assignor._member.session = session
        stand.owning.reconcile()
        assert stand.assignor.session.dormant == Map()


def test_the_lag_of_state_that_is_only_on_disk_is_not_known() -> None:
    """It grows old unseen: a former owner must not be taken for ready by what it was once."""
    run(_grows_old())


async def _grows_old() -> None:
    async with stand_of() as stand:
        session = TaskSession(state=TaskMemberState.RUNNING, dormant=Map({TASK: 0}))
        stand.assignor._member.session = session
        stand.assignor.tell(LagMeasured(stand.owning.lags()))
        assert dict(stand.assignor.session.dormant) == {TASK: None}


def test_a_grant_that_comes_while_the_learner_begins_keeps_its_job() -> None:
    run(_granted_meanwhile())


async def _granted_meanwhile() -> None:
    async with stand_of(INPUT) as stand:
        held = await granted_while_it_begins(stand)
        granted = held.job
        stand.ends.answers.set()
        await until(lambda: held.replay is not None)
        await asyncio.sleep(0)
        assert held.job is granted
        stand.owning.stop_tasks(frozenset({INPUT}))  # revoked while its state is restored
        assert stand.owning.held == {}
        assert granted is not None
        await asyncio.wait([granted])
        assert granted.cancelled()
        assert stand.control.said == []


async def granted_while_it_begins(stand: Stand) -> Held:
    """Have the task granted while its learner asks where the changelog begins."""
    stand.ends.answers.clear()
    stand.control.is_read.clear()
    stand.owning._follow(TASK)
    held = stand.owning.held[TASK]
    await asyncio.sleep(0)
    stand.owning._grant(TASK)
    return held


def test_a_grant_goes_on_where_its_learner_could_not_begin() -> None:
    run(_begins_anew())


async def _begins_anew() -> None:
    async with stand_of(INPUT) as stand:
        stand.ends.trouble = StateDiskFullError("for the learner only")
        held = await granted_while_it_begins(stand)
        stand.ends.answers.set()
        stand.control.is_read.set()
        await until(lambda: held.job is None)
        assert held.role is Role.RUNNING
        assert stand.owning.reports.failures == {}
        assert [type(each).__name__ for each in stand.control.said] == ["Started"]


def test_a_grant_that_is_given_up_starts_nothing() -> None:
    run(_given_up())


async def _given_up() -> None:
    async with stand_of(INPUT) as stand:
        held = await granted_while_it_begins(stand)
        job = held.job
        stand.owning.lose(frozenset({INPUT}))
        stand.ends.answers.set()
        stand.control.is_read.set()
        assert job is not None
        await asyncio.wait([job])
        assert held.role is not Role.RUNNING
        assert stand.control.said == []
