"""A cancelled instance commits nothing that has not been sent, and keeps nobody waiting."""

from __future__ import annotations

import asyncio

import pytest

from kohort.streams import App
from kohort.streams.assignment.tasks import Task
from kohort.streams.events import TaskReleased
from kohort.types import TopicPartition
from tests.streams.stubs import WAIT_S, Producer, Stand, cancel, record, until

INPUT = TopicPartition("in", 0)
RECORDS = 5


def counting() -> App:
    """Return a program that writes each record, and counts."""
    app = App("a")
    records = app.topic("in", key=str, value=str)
    records.to("out")
    records.count(name="n")
    return app


def add(stand: Stand, place: TopicPartition) -> None:
    """Have the instance process a task that has records."""
    held = stand.run(Task(0, place.partition))
    held.work.add(place, [record(place, offset) for offset in range(RECORDS)])


@pytest.mark.parametrize("sent", [0, 2, RECORDS - 1])
def test_outputs_that_wait_for_room(sent: int, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with Stand(counting(), [INPUT], Producer(full=sent)) as stand:
            add(stand, INPUT)
            job = asyncio.create_task(stand.process())
            await stand.producer.is_waiting.wait()
            await cancel(job)
            await stand.revoke()
            assert stand.consumer.offsets == {}
            assert not [each for each in stand.events if isinstance(each, TaskReleased)]
            assert stand.control.said == []

    asyncio.run(run())
    assert any("task 0_0" in each and "was cancelled" in each for each in caplog.messages)


def test_changes_of_state_that_wait_for_room() -> None:
    async def run() -> None:
        async with Stand(counting(), [INPUT], Producer(full=RECORDS)) as stand:
            add(stand, INPUT)
            await stand.process()
            job = asyncio.create_task(stand.commit())
            await stand.producer.is_waiting.wait()
            await cancel(job)
            await stand.revoke()
            assert stand.consumer.offsets == {}

    asyncio.run(run())


def test_acknowledgements_that_are_awaited() -> None:
    async def run() -> None:
        async with Stand(counting(), [INPUT]) as stand:
            stand.producer.is_slow = True
            add(stand, INPUT)
            await stand.process()
            job = asyncio.create_task(stand.commit())
            await until(lambda: len(stand.producer.delivering) > RECORDS)
            await asyncio.sleep(0)
            await cancel(job)
            for each in stand.producer.delivering[:-1]:
                each.set_result(None)
            stand.producer.delivering[-1].set_exception(ValueError("not stored"))
            await stand.revoke()
            assert stand.consumer.offsets == {}

    asyncio.run(run())


def test_a_task_that_awaits_a_function_keeps_no_other_from_its_last_commit() -> None:
    async def run() -> None:
        is_waiting = asyncio.Event()

        async def wait(_key: str, _value: str) -> None:
            is_waiting.set()
            await asyncio.Event().wait()

        app = App("a")
        app.topic("in", key=str, value=str).for_each(wait)
        app.topic("other", key=str, value=str).to("out")
        other = TopicPartition("other", 0)
        async with Stand(app, [INPUT, other]) as stand:
            add(stand, INPUT)
            held = stand.run(Task(1, 0))
            held.work.add(other, [record(other, 0)])
            job = asyncio.create_task(stand.process())
            await is_waiting.wait()
            await until(lambda: stand.producer.sent == ["out"] and held.is_idle.is_set())
            await cancel(job)
            await stand.revoke()
            assert stand.consumer.offsets == {other: 1}

    asyncio.run(run())


def test_a_revocation_does_not_wait_with_the_others_for_one_that_awaits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The turn has all records.
    monkeypatch.setattr("kohort.streams.app.application._LONGEST_S", WAIT_S)

    async def run() -> None:
        goes_on = asyncio.Event()

        async def wait(_key: str, _value: str) -> None:
            await goes_on.wait()

        app = App("a")
        app.topic("in", key=str, value=str).for_each(wait)
        app.topic("other", key=str, value=str).to("out")
        other = TopicPartition("other", 0)
        async with Stand(app, [INPUT, other]) as stand:
            add(stand, INPUT)
            held = stand.run(Task(1, 0))
            held.work.add(other, [record(other, 0)])
            job = asyncio.create_task(stand.process())
            await until(lambda: stand.producer.sent == ["out"] and held.is_idle.is_set())
            revoking = asyncio.create_task(stand.revoke())
            await until(lambda: stand.consumer.offsets == {other: 1})
            goes_on.set()
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(job, revoking)
            assert stand.consumer.offsets == {other: 1, INPUT: RECORDS}

    asyncio.run(run())


def test_a_function_that_was_not_even_begun_keeps_nobody_waiting() -> None:
    """The first task awaits a function; the instance is cancelled while the second one sends."""

    async def run() -> None:
        async def wait(_key: str, _value: str) -> None:
            await asyncio.Event().wait()

        app = App("a")
        app.topic("in", key=str, value=str).for_each(wait)
        app.topic("other", key=str, value=str).to("out")
        other = TopicPartition("other", 0)
        async with Stand(app, [INPUT, other], Producer(full=0)) as stand:
            add(stand, INPUT)
            held = stand.run(Task(1, 0))
            held.work.add(other, [record(other, 0)])
            job = asyncio.create_task(stand.process())
            await stand.producer.is_waiting.wait()
            await cancel(job)
            await stand.revoke()
            assert stand.consumer.offsets == {}

    asyncio.run(run())


def test_a_last_commit_waits_for_changes_that_another_commit_is_sending() -> None:
    async def run() -> None:
        async with Stand(counting(), [INPUT], Producer(full=RECORDS)) as stand:
            add(stand, INPUT)
            await stand.process()
            job = asyncio.create_task(stand.commit())
            await stand.producer.is_waiting.wait()
            revoking = asyncio.create_task(stand.revoke())
            for _ in range(20):  # turns of the loop, in which nothing may happen
                await asyncio.sleep(0)
            assert stand.consumer.offsets == {}
            stand.producer.has_room.set()
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(job, revoking)
            assert stand.consumer.offsets == {INPUT: RECORDS}
            assert [each.kind for each in stand.events] == ["TaskReleased"]

    asyncio.run(run())
