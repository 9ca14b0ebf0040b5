"""What is replayed, at which rate, up to which end; and whose replay fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import pytest

from kohort.streams import App
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import ChangelogTruncatedError
from kohort.streams.log.records import ControlState, Released
from kohort.streams.runtime import restoring
from kohort.streams.runtime.holding import Role
from kohort.streams.runtime.restoring import Replay
from kohort.streams.settings import StreamSettings
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.streams.stubs import WAIT_S, Control, Stand, until
from tests.streams.test_following import batch

INPUT, TASK = TopicPartition("in", 0), Task(0, 0)
CHANGELOG = TopicPartition("a-n-changelog", 0)


def run(work: Coroutine[object, object, None]) -> None:
    """Run a test on a loop."""

    async def limited() -> None:
        async with asyncio.timeout(WAIT_S):
            await work

    asyncio.run(limited())


def app() -> App:
    """Return a program that counts."""
    program = App("a")
    program.topic("in", key=str, value=str).count(name="n")
    return program


async def replay_of(stand: Stand, number: int) -> Replay:
    """Begin to replay a task."""
    task = Task(0, number)
    replay = Replay(task, stand.application.make_task(task, None), None)
    await stand.restorer.follow(replay)
    return replay


def test_what_is_granted_does_not_use_up_the_rate_of_learners() -> None:
    run(_rates())


async def _rates() -> None:
    async with Stand(app(), settings=StreamSettings(learner_records_per_s=1_000)) as stand:
        granted = await replay_of(stand, 3)
        learner = await replay_of(stand, 4)
        granted.is_urgent = True
        for _ in range(20):
            await stand.restorer._allowance()
            stand.restorer._take(batch([b"k"] * 5_000, 3))
        granted.is_urgent = False
        stand.restorer.leave(granted)
        assert await stand.restorer._allowance() > 0
        stand.restorer._take(batch([b"k"] * 100, 4))
        assert (granted.records, learner.records) == (100_000, 100)
        assert stand.restorer._allowed < 1  # and learners use up theirs


def after_a_reset(committed: int | None) -> Stand:
    """Return an instance whose changelog is new, and whose control topic is old."""
    released = Released(
        task=TASK, generation=3, member="old", at=1, ends=(("a-n-changelog", 0, 57),)
    )
    stand = Stand(app(), [INPUT], control=Control(ControlState().with_record(released)))

    async def offsets(*_: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        return {} if committed is None else {INPUT: OffsetAndMetadata(committed, "")}

    consumer: Any = stand.consumer
    consumer.committed = offsets
    return stand


def test_a_release_from_before_a_reset_is_passed_over() -> None:
    run(_reset())


async def _reset() -> None:
    async with after_a_reset(None) as stand:
        stand.owning._grant(TASK)
        held = stand.owning.held[TASK]
        await until(lambda: held.job is None)
        assert held.role is Role.RUNNING


def test_a_release_holds_where_the_group_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "_APPEARS_S", 0.0)
    run(_truncated())


async def _truncated() -> None:
    async with after_a_reset(4) as stand:
        stand.owning._grant(TASK)
        held = stand.owning.held[TASK]
        await until(lambda: held.error is not None)
        assert isinstance(held.error, ChangelogTruncatedError)
        assert "kohort streams reset a" in str(held.error)


def test_a_grant_is_replayed_beyond_what_was_committed_or_released_last() -> None:
    """An owner that died may have stored changes after that."""
    run(_beyond())


async def _beyond() -> None:
    async with after_a_reset(4) as stand:
        stand.ends.end = 100
        stand.owning._grant(TASK)
        held: Any = stand.owning.held[TASK]
        await until(lambda: held.replay is not None and held.replay.is_urgent)
        held.replay.moved_to(CHANGELOG, 57)
        for _ in range(20):  # turns of the loop, in which nothing may happen
            await asyncio.sleep(0)
        assert stand.owning.in_role(Role.RESTORING) == [held]
        held.replay.moved_to(CHANGELOG, 100)
        await until(lambda: held.job is None)
        assert stand.owning.in_role(Role.RUNNING) == [held]
        assert held.changelog_ends == {CHANGELOG: 100}


def test_the_lag_of_a_task_is_known_once_that_of_each_changelog_is() -> None:
    """KAFKA-10651: one whose end is not known may be far behind."""
    run(_known_lags())


async def _known_lags() -> None:
    program = App("a")
    records = program.topic("in", key=str, value=str)
    records.count(name="n")
    records.count(name="m")
    async with Stand(program) as stand:
        replay = await replay_of(stand, 0)
        lags: dict[TopicPartition, int | None] = {CHANGELOG: 3}
        reader: Any = stand.restorer.consumer
        reader.current_lag = lags.get
        assert stand.restorer.lag(replay) is None
        lags[TopicPartition("a-m-changelog", 0)] = 4
        assert stand.restorer.lag(replay) == 7


class Noted:
    """A directory with a checkpoint."""

    def __init__(self, at: int) -> None:
        self.at = at

    def read_checkpoint(self) -> Mapping[TopicPartition, int]:
        return {CHANGELOG: self.at}

    def write_checkpoint(self, offsets: Mapping[TopicPartition, int], /) -> None:
        self.at = offsets[CHANGELOG]


def test_a_checkpoint_waits_for_a_new_leader_to_know_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new leader of a changelog may know of fewer records at first than were acknowledged."""
    monkeypatch.setattr(restoring, "_AGAIN_S", 0.0)
    run(_new_leader())


async def _new_leader() -> None:
    async with Stand(app()) as stand:
        reader: Any = stand.restorer.consumer
        ends = iter((3, 3, 7))

        async def known(places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(places, next(ends))

        reader.end_offsets = known
        work = stand.application.make_task(TASK, None)
        replay = Replay(TASK, work, Noted(7))
        await stand.restorer.follow(replay)
        assert replay.positions == {CHANGELOG: 7}


def test_nothing_left_to_replay_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    """A poll that has begun before must not tell people to subscribe."""
    run(_left())
    assert not [each for each in caplog.messages if "has no topics" in each]


async def _left() -> None:
    async with Stand(app()) as stand:
        replay = await replay_of(stand, 3)
        stand.restorer.leave(replay)
        consumer = stand.restorer.consumer
        consumer._core._begin(reads=True)  # as a poll does whenever anything changes
        assert consumer.paused() == consumer.assignment()
