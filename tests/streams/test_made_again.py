"""Changelogs that are deleted and made again while instances run: no state begins from nothing."""

from __future__ import annotations

import asyncio

import pytest
from immutables import Map

from kohort import AdminClient, AsyncProducer
from kohort.client import NewTopic
from kohort.streams import App
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import ChangelogTruncatedError, MissingTopicError, TaskFailedError
from kohort.streams.events import TaskFailed
from kohort.streams.log.records import ChangelogNoted, ControlState
from kohort.streams.runtime import growth
from kohort.streams.runtime.holding import Role
from kohort.types import TopicPartition
from tests.streams.counting import Running
from tests.streams.feeding import Case
from tests.streams.runtime.test_running import SETTINGS, runs
from tests.streams.stubs import ONE_ID, Control, Stand, record, until

pytestmark = pytest.mark.timeout(240)
INPUT, TASK = TopicPartition("in", 0), Task(0, 0)


def app() -> App:
    """Return a program that counts."""
    program = App("a")
    program.topic("in", key=str, value=str).count(name="n")
    return program


def noted(topic_id: str) -> Control:
    """Return a control topic that has the id of the changelog."""
    said = ChangelogNoted(topic="a-n-changelog", topic_id=topic_id, at=1)
    return Control(ControlState().with_record(said))


def test_a_changelog_made_again_fails_every_task_and_those_of_later_instances(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "_LOOK_S", 0.2)
    asyncio.run(_fails_every_task(Case(servers)))


async def _fails_every_task(case: Case) -> None:
    one = Running(case.application(), case.address, SETTINGS)
    await one.until(lambda: runs(one, case.tasks))
    async with AsyncProducer(bootstrap_servers=case.address) as producer:
        await case.send(producer, 100)
        await producer.flush()
        await case.counts()
        await asyncio.to_thread(make_again, case)
        _ = await producer.send(case.input, b"x", b"key-1")  # only one task writes to the new one
        await producer.flush()
        # It sees the new changelog, or that there is none for a while.
        await fails(one, case.tasks, ChangelogTruncatedError, MissingTopicError)
    other = Running(case.application(), case.address, SETTINGS)
    await fails(other, case.tasks, ChangelogTruncatedError)


def make_again(case: Case) -> None:
    """Delete the changelog, and make it again as soon as brokers let us."""
    changelog = f"{case.name}-counts-changelog"
    with AdminClient(bootstrap_servers=case.address) as admin:
        admin.delete_topics([changelog])
        while changelog in admin.list_topics():
            pass
        compacted = {"cleanup.policy": "compact"}
        admin.create_topics([NewTopic(changelog, case.tasks, configs=compacted)])


async def fails(one: Running, count: int, *errors: type[Exception]) -> None:
    """Wait until all tasks have failed with some of these errors, and end the instance."""
    await one.until(lambda: len(one.of(TaskFailed)) >= count)
    assert {type(each.error) for each in one.of(TaskFailed)} <= set(errors)
    one.instance.stop()
    with pytest.raises(TaskFailedError, match="kohort streams reset"):
        await one.job


@pytest.mark.parametrize("is_the_same", [True, False])
def test_a_grant_asks_which_topic_it_has_replayed(is_the_same: bool) -> None:
    asyncio.run(_asks(is_the_same))


async def _asks(is_the_same: bool) -> None:
    control = noted(str(ONE_ID) if is_the_same else "another")
    async with Stand(app(), [INPUT], control=control) as stand:
        stand.owning._grant(TASK)
        held = stand.owning.held[TASK]
        await until(lambda: held.job is None)
        assert held.role is (Role.RUNNING if is_the_same else Role.FAILED)
        assert isinstance(held.error, ChangelogTruncatedError) is not is_the_same


def test_the_first_id_that_was_noted_holds() -> None:
    state = ControlState()
    for each in ("one", "other"):
        state = state.with_record(ChangelogNoted(topic="t", topic_id=each, at=1))
    assert state.changelogs == Map({"t": "one"})


def test_a_changelog_that_becomes_shorter_while_it_is_written_fails_its_task() -> None:
    """Brokers without topic ids; one id of two topics is as good."""
    asyncio.run(_becomes_shorter())


async def _becomes_shorter() -> None:
    async with Stand(app(), [INPUT]) as stand:
        held = stand.run(TASK)
        held.changelog_ends[TopicPartition("a-n-changelog", 0)] = 57
        held.work.add(INPUT, [record(INPUT, 0)])
        await stand.process()
        await stand.commit()
        assert stand.consumer.offsets == {}
        assert isinstance(held.error, ChangelogTruncatedError)
        assert "kohort streams reset a" in str(held.error)
