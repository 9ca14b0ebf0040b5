"""Errors of brokers: what passes is tried again, what does not fails only the tasks concerned."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, cast

import pytest

from kohort.client.consumer.records import ConsumerRecord
from kohort.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    CommitFailedError,
    ErrorCode,
    KafkaError,
    KohortError,
    LocalProtocolError,
    PartialFailureError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.streams import App
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import InputChangedError
from kohort.streams.log.control import ControlLog
from kohort.streams.log.records import Started
from kohort.streams.runtime.holding import Held, Role
from kohort.streams.runtime.restoring import Replay
from kohort.types import TopicPartition
from tests.streams.stubs import NOWHERE, WAIT_S, Consumer, Stand, record, until
from tests.streams.test_following import TASK, batch, followed

FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)
PASSING = [
    RemoteProtocolError("in-0 at offset 7: no whole record batch"),
    KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "in-0 at offset 7"),
    KafkaError(4_711, "in-0 at offset 7"),
    RequestTimedOutError("no answer in time"),
    BrokerUnavailableError("no broker can be reached"),
]
LASTING = [
    AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED),
    KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED),
    KafkaError(ErrorCode.FENCED_INSTANCE_ID),
    KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "a-n-changelog-99 has no offset 7"),
    LocalProtocolError("the consumer is closed"),
]


def named(error: KohortError) -> str:
    return str(error)[:30]


def run(work: Coroutine[object, object, None]) -> None:
    """Run a test on a loop."""

    async def limited() -> None:
        async with asyncio.timeout(WAIT_S):
            await work

    asyncio.run(limited())


def counting() -> App:
    """Return a program that counts."""
    app = App("a")
    app.topic("in", key=str, value=str).count(name="n")
    return app


def two_tasks(stand: Stand) -> tuple[Held, Held]:
    """Have the instance process two tasks that have read one record each."""
    first, second = stand.run(Task(0, 0)), stand.run(Task(0, 1))
    first.work.add(FIRST, [record(FIRST, 57)])
    second.work.add(SECOND, [record(SECOND, 3)])
    return first, second


# ------------------------------------------------------------------------------------ main loop


@pytest.mark.parametrize("error", PASSING, ids=named)
def test_a_poll_that_fails_is_tried_again(
    error: KohortError, caplog: pytest.LogCaptureFixture
) -> None:
    async def polled() -> None:
        async with Stand(counting(), [FIRST]) as stand:
            stand.run(Task(0, 0))
            stand.consumer.found = {FIRST: [record(FIRST, 0)]}
            stand.consumer.trouble = error
            await stand.step()
            await stand.step()
            await stand.commit()
            assert stand.consumer.offsets == {FIRST: 1}

    run(polled())
    assert any(str(error) in each for each in caplog.messages)


class GivenUp(Consumer):
    """A consumer whose member has given up: each poll raises why."""

    def __init__(self, error: KohortError) -> None:
        super().__init__([FIRST])
        self.fatal = error

    @property
    def membership(self) -> Any:
        return self

    async def poll(self, _timeout_ms: int) -> Mapping[TopicPartition, Sequence[ConsumerRecord]]:
        raise self.fatal


@pytest.mark.parametrize("error", PASSING, ids=named)
def test_a_member_that_has_given_up_ends_the_instance(error: KohortError) -> None:
    """A code that often passes, such as UNKNOWN_SERVER_ERROR to a JoinGroup, is final then."""

    async def polled() -> None:
        async with Stand(counting()) as stand:
            stand.owning.consumer = cast("Any", GivenUp(error))
            with pytest.raises(type(error)):
                await stand.step()

    run(polled())


@pytest.mark.parametrize("error", LASTING, ids=named)
def test_a_poll_that_cannot_succeed_ends_the_instance(error: KohortError) -> None:
    async def polled() -> None:
        async with Stand(counting(), [FIRST]) as stand:
            stand.consumer.trouble = error
            with pytest.raises(type(error)):
                await stand.step()

    run(polled())


@pytest.mark.parametrize("error", [*PASSING, CommitFailedError(ErrorCode.ILLEGAL_GENERATION)])
def test_a_commit_that_fails_is_made_up_for(
    error: KohortError, caplog: pytest.LogCaptureFixture
) -> None:
    async def committed() -> None:
        async with Stand(counting(), [FIRST, SECOND]) as stand:
            two_tasks(stand)
            await stand.process()
            stand.consumer.trouble = error
            await stand.commit()
            assert stand.consumer.offsets == {}
            await stand.commit()
            assert stand.consumer.offsets == {FIRST: 58, SECOND: 4}

    run(committed())
    assert any(str(error) in each for each in caplog.messages)


def test_a_partition_whose_commit_is_refused_fails_its_task_alone() -> None:
    run(_refused())


async def _refused() -> None:
    async with Stand(counting(), [FIRST, SECOND]) as stand:
        first, second = two_tasks(stand)
        await stand.process()
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "in-0 does not exist")
        stand.consumer.trouble = PartialFailureError({FIRST: gone})
        await stand.commit()
        assert first.role is Role.FAILED
        assert isinstance(first.error, InputChangedError)
        assert "in-0" in str(first.error)
        assert "kohort streams reset a" in str(first.error)
        assert second.role is Role.RUNNING
        assert second.committed == {SECOND: 4}


def test_an_input_that_goes_back_fails_its_task_alone() -> None:
    run(_goes_back())


async def _goes_back() -> None:
    async with Stand(counting(), [FIRST, SECOND]) as stand:
        first, second = two_tasks(stand)
        stand.consumer.found = {FIRST: [record(FIRST, 0)], SECOND: [record(SECOND, 4)]}
        await stand.step()
        await stand.commit()
        assert first.role is Role.FAILED
        assert isinstance(first.error, InputChangedError)
        assert "in-0: offset 0 was added after 57" in str(first.error)
        assert "kohort streams reset a" in str(first.error)
        assert FIRST in stand.consumer.paused
        assert stand.consumer.offsets == {SECOND: 5}
        assert second.role is Role.RUNNING


@pytest.mark.parametrize("member", ["me", "another", None])
def test_a_failed_task_that_comes_back_stands_still_unless_another_member_has_had_it(
    member: str | None,
) -> None:
    run(_comes_back(member))


async def _comes_back(member: str | None) -> None:
    async with Stand(counting(), [FIRST]) as stand:
        held = stand.run(TASK)
        error = InputChangedError("in-0 was made again")
        stand.owning.fail(held, error)
        stand.owning.stop_tasks(frozenset({FIRST}))
        if member is not None:
            started = Started(
                task=TASK, generation=2, member=member, at=1, unavailable_ms=None, restored=0
            )
            stand.control.state = stand.control.state.with_record(started)
        stand.owning._grant(TASK)
        again = stand.owning.held[TASK]
        await until(lambda: again.job is None)
        has_moved = member == "another"
        assert again.role is (Role.RUNNING if has_moved else Role.FAILED)
        assert stand.owning.reports.failures == ({} if has_moved else {TASK: error})


# --------------------------------------------------------------------------------- control topic


@pytest.mark.parametrize("error", PASSING, ids=named)
def test_the_control_topic_is_followed_after_a_trouble(error: KohortError) -> None:
    run(_control_followed(error))


async def _control_followed(error: KohortError) -> None:
    polls = 0
    async with ControlLog("a", NOWHERE) as control:

        async def poll(_timeout_ms: int) -> dict[TopicPartition, Any]:
            nonlocal polls
            polls += 1
            if polls == 1:
                raise error
            await asyncio.sleep(0)
            return {}

        reader: Any = control._consumer
        reader.poll = poll
        job = asyncio.create_task(control.follow())
        await until(lambda: polls > 2 or job.done())
        assert not job.done()
        job.cancel()
        await asyncio.wait([job])


# ------------------------------------------------------------------------------------- changelogs


@pytest.mark.parametrize("error", PASSING, ids=named)
def test_changelogs_are_read_after_a_trouble(error: KohortError) -> None:
    run(_changelogs_read(error))


async def _changelogs_read(error: KohortError) -> None:
    async with Stand(counting()) as stand:
        held = await followed(stand)
        polls = 0

        async def poll(_timeout_ms: int, **_: object) -> Any:
            nonlocal polls
            polls += 1
            if polls == 1:
                raise error
            await asyncio.sleep(0)
            return batch([b"k"])

        reader: Any = stand.restorer.consumer
        reader.poll_arrow = poll
        job = asyncio.create_task(stand.restorer.run())
        await until(lambda: polls > 2 or job.done())
        assert not job.done()
        assert held.error is None
        assert stand.restorer.records > 0
        job.cancel()
        await asyncio.wait([job])


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("a-n-changelog-12 has no offset 7", [12]),
        ("a-n-changelog-1 has no offset 7", [1]),
        ("a-n-changelog-1: and a-n-changelog-12.", [1, 12]),
    ],
)
def test_only_the_changelog_that_is_named_is_to_blame(text: str, failed: list[int]) -> None:
    run(_blamed(text, failed))


async def _blamed(text: str, failed: list[int]) -> None:
    async with Stand(counting()) as stand:
        replays = {}
        for number in (1, 2, 12):
            work = stand.application.make_task(Task(0, number), None)
            replays[number] = Replay(Task(0, number), work, None)
            await stand.restorer.follow(replays[number])
        await stand.restorer._blame(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text))
        assert [number for number, each in replays.items() if each.error] == failed
        with pytest.raises(KafkaError, match="xa-n-changelog-2 has"):
            await stand.restorer._blame(
                KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "xa-n-changelog-2 has no offset 7")
            )


# ------------------------------------------------------------------------------------------ grants


@pytest.mark.parametrize("what", ["changelog", "offsets", "control"])
def test_a_grant_asks_again_where_brokers_did_not_answer(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(_asks_again(what))
    assert any("task 0_0" in each and "no answer" in each for each in caplog.messages)


async def _asks_again(what: str) -> None:
    async with Stand(counting(), [FIRST]) as stand:
        error = RequestTimedOutError("no answer in time")
        if what == "changelog":
            stand.ends.trouble = error
        else:
            place: Any = stand.consumer if what == "offsets" else stand.control
            name = "committed" if what == "offsets" else "caught_up"
            answer = getattr(place, name)

            errors = [error]

            async def asked(*partitions: TopicPartition) -> object:
                if errors:
                    raise errors.pop()
                return await answer(*partitions)

            setattr(place, name, asked)
        stand.owning._grant(TASK)
        held = stand.owning.held[TASK]
        await until(lambda: held.job is None or held.error is not None)
        assert held.role is Role.RUNNING
