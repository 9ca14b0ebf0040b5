"""How instances end: signals, errors while they leave, rebalances that are under way."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from kohort.client.consumer.records import ConsumerRecord
from kohort.errors import RebalanceInProgressError
from kohort.streams import App
from kohort.streams.assignment.member import TaskMemberState, TaskSession
from kohort.streams.assignment.tasks import Task
from kohort.streams.runtime.holding import Role
from kohort.streams.runtime.running import StreamsInstance
from kohort.types import TopicPartition
from kohort.values import replace
from tests.broker.processes import eventually
from tests.streams.stubs import Consumer, Stand, record, until

PLACE, TASK = TopicPartition("in", 0), Task(0, 0)
HANGS = """
import asyncio
from kohort.streams import App
from kohort.streams.app.instance import ProgramInstance

async def run(self):  # as an instance whose brokers do not answer while it leaves
    self._loop = asyncio.get_running_loop()
    print("runs", flush=True)
    while not self._is_over:
        await asyncio.sleep(0.01)
    print("leaves", flush=True)
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(600)

ProgramInstance.run = run
app = App("a")
app.topic("in", key=str, value=str).for_each(lambda key, value: None)
app.run(bootstrap_servers="127.0.0.1:1")
"""
BLOCKS = """
import time
from kohort.streams import App
from kohort.streams.app.instance import ProgramInstance

async def run(self):  # as an instance with a function that awaits nothing
    print("runs", flush=True)
    time.sleep(600)

ProgramInstance.run = run
app = App("a")
app.topic("in", key=str, value=str).for_each(lambda key, value: None)
app.run(bootstrap_servers="127.0.0.1:1")
"""
RUNS = """
import signal
from kohort.streams import App
from kohort.streams.app.instance import ProgramInstance

async def run(self):
    self._loop = None
    signal.raise_signal(signal.SIGTERM)
    while not self._is_over:
        await __import__("asyncio").sleep(0.01)

ProgramInstance.run = run
before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
app = App("a")
app.topic("in", key=str, value=str).for_each(lambda key, value: None)
app.run(bootstrap_servers="127.0.0.1:1")
assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
print("as before")
"""


def counting() -> App:
    """Return a program that counts."""
    app = App("a")
    app.topic("in", key=str, value=str).count(name="n")
    return app


# ---------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_later_signal_ends_the_process_at_once(which: signal.Signals) -> None:
    command = [sys.executable, "-c", HANGS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
            process.send_signal(which)
            assert process.stdout.readline() == "leaves\n"
            eventually(lambda: again(process, which), "a later signal has ended it")
            assert process.wait(60) == -which
        finally:
            process.kill()


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_later_signal_ends_a_process_whose_function_blocks(which: signal.Signals) -> None:
    command = [sys.executable, "-c", BLOCKS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
            eventually(lambda: again(process, which), "a later signal has ended it")
            assert process.wait(60) == -which
        finally:
            process.kill()


def again(process: subprocess.Popen[str], which: signal.Signals) -> bool:
    """Send a signal once more; those that come at once count as the first."""
    process.send_signal(which)
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.1)
    return process.returncode is not None


def test_handlers_of_signals_are_as_before_afterwards() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUNS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "as before\n", done.stderr


# ---------------------------------------------------------------------------------------- leaving


class Leaving(Consumer):
    """A member that can leave its group; `error` is raised when it does."""

    def __init__(self, assigned: Sequence[TopicPartition] = ()) -> None:
        super().__init__(assigned)
        self.error: Exception | None = None
        self.polls = 0

    def subscribe(self, *_: object, **__: object) -> None:
        """It is a member already."""

    async def close(self, _timeout_s: float) -> None:
        if self.error is not None:
            raise self.error

    async def poll(self, timeout_ms: int) -> Mapping[TopicPartition, Sequence[ConsumerRecord]]:
        self.polls += 1
        return await super().poll(timeout_ms)


def leaving(stand: Stand) -> Leaving:
    """Return the member of an instance, which is about to stop."""
    consumer = Leaving([PLACE])
    stand.consumer = consumer
    owning: Any = stand.owning
    owning.consumer = owning.commits._consumer = consumer
    stand.instance.stop()
    return consumer


def test_tasks_are_closed_where_the_group_cannot_be_left() -> None:
    async def left() -> None:
        async with Stand(counting(), [PLACE]) as stand:
            held = stand.run(TASK)
            closed: list[bool] = []
            work: Any = held.work
            work.close = lambda: closed.append(True)
            leaving(stand).error = ValueError("no broker answers")
            with pytest.raises(ValueError, match="no broker answers"):
                await stand.instance._run(stand.owning)
            assert closed == [True]
            assert stand.owning.held == {}

    asyncio.run(left())


def test_an_instance_that_is_stopped_in_a_rebalance_commits_after_it() -> None:
    asyncio.run(_stopped_in_a_rebalance())


async def _stopped_in_a_rebalance() -> None:
    async with Stand(counting(), [PLACE]) as stand:
        held = stand.run(TASK)
        held.work.add(PLACE, [record(PLACE, 0)])
        await stand.process()
        consumer: Any = leaving(stand)
        member: Any = stand.assignor._member
        member.session = TaskSession(state=TaskMemberState.JOINING, generation=1)
        commit, poll = consumer.commit, consumer.poll

        async def refuse(offsets: Mapping[TopicPartition, Any]) -> None:
            if member.session.state is TaskMemberState.JOINING:
                raise RebalanceInProgressError
            await commit(offsets)

        async def settle(timeout_ms: int) -> object:
            if consumer.polls == 3:
                member.session = replace(member.session, state=TaskMemberState.RUNNING)
            return await poll(timeout_ms)

        consumer.commit, consumer.poll = refuse, settle
        await stand.instance._run(stand.owning)
        assert consumer.offsets == {PLACE: 1}


def test_who_is_to_leave_before_it_has_joined_leaves() -> None:
    async def left() -> None:
        async with Stand(counting(), [PLACE]) as stand:
            instance: Any = StreamsInstance(stand.application, clients={"bootstrap_servers": "x:1"})
            instance.leave_soon()
            instance._begin(stand.owning)
            assert stand.assignor.session.leaving_since is not None

    asyncio.run(left())


# ---------------------------------------------------------------------------------------- restores


class Disk:
    """A directory that notes the checkpoints that are written."""

    def __init__(self) -> None:
        self.written: list[Mapping[TopicPartition, int]] = []

    def read_checkpoint(self) -> Mapping[TopicPartition, int]:
        return {}

    def write_checkpoint(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.written.append(dict(offsets))


@pytest.mark.parametrize("how", ["time", "revoked", "lost", "closed"])
def test_a_restore_that_is_broken_off_goes_on_where_it_was(how: str) -> None:
    asyncio.run(_broken_off(how))


async def _broken_off(how: str) -> None:
    async with Stand(counting(), [PLACE]) as stand:
        stand.ends.end = 100
        disk = Disk()
        stand.owning._grant(TASK)
        held: Any = stand.owning.held[TASK]
        held.directory = disk
        await until(lambda: held.replay is not None and held.replay.is_urgent)
        changelog = TopicPartition("a-n-changelog", 0)
        held.replay.moved_to(changelog, 60)
        assert held.role is Role.RESTORING
        if how == "time":
            stand.owning.checkpoint_followed()
        elif how == "revoked":
            await stand.revoke()
        elif how == "lost":
            stand.owning.lose(frozenset({PLACE}))
        else:
            await stand.owning.close()
        assert disk.written == [{changelog: 60}]
        assert (TASK in stand.owning.held) == (how == "time")
