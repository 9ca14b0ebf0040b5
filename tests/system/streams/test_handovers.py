"""For how long a task has no owner when instances come and go, as the instances themselves tell it.

Four instances: one has all tasks, a second one comes (scale-out), two more replace both (swap), and
one of those leaves (scale-in). What a task waits for is counted in changelog records that its new
owner replays after the grant: none where it has learned, all of the state where it has not. The
time itself is bounded on Apache Kafka only, where nothing else depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kohort import AsyncProducer
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.events import TaskStarted
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings
from tests.streams.counting import WAIT_S, Running
from tests.streams.feeding import TASKS, Case

HEARTBEAT_MS = 3_000
# One round trip, on a machine that has other tests to run.
ROUND_TRIP_MS = 2_000
WITH = StreamSettings(
    commit_interval_ms=100,
    lag_interval_ms=100,
    learners=LearnerSettings(max_warmup_learners=None, acceptable_recovery_lag=0),
)
# Any lag is ready, and hardly anything is replayed before the grant.
WITHOUT = StreamSettings(
    commit_interval_ms=100,
    lag_interval_ms=100,
    learner_records_per_s=1,
    learners=LearnerSettings(max_warmup_learners=None, acceptable_recovery_lag=2**62),
)
pytestmark = pytest.mark.timeout(240)


class Fleet:
    """Instances of one application."""

    def __init__(self, case: Case, settings: StreamSettings, heartbeat_ms: int) -> None:
        self.case = case
        self.settings = settings
        self.heartbeat_ms = heartbeat_ms
        self.running: list[Running] = []

    def start(self) -> Running:
        case, beat = self.case, self.heartbeat_ms
        one = Running(case.application(), case.address, self.settings, heartbeat_interval_ms=beat)
        self.running.append(one)
        return one

    async def leave(self, *leaving: Running) -> None:
        for one in leaving:
            one.instance.leave_soon()
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*(one.job for one in leaving))

    async def moves(self) -> list[TaskStarted]:
        """Scale out, swap and scale in; return each start of a task that had an owner before."""
        first = self.start()
        await first.until(lambda: processes(first) == TASKS)
        second = self.start()
        await second.until(lambda: (processes(first), processes(second)) == (TASKS // 2,) * 2)
        third, fourth = self.start(), self.start()
        await third.until(lambda: bool(third.instance.member_id and fourth.instance.member_id))
        await self.leave(first, second)
        await third.until(lambda: processes(third) + processes(fourth) == TASKS)
        await self.leave(fourth)
        await third.until(lambda: processes(third) == TASKS)
        return [each for one in (second, third, fourth) for each in one.of(TaskStarted)]


def processes(one: Running) -> int:
    return list(one.instance.tasks.values()).count(Role.RUNNING)


@asynccontextmanager
async def fleet_with_state(
    address: str, settings: StreamSettings, keys: int, heartbeat_ms: int = 200
) -> AsyncIterator[Fleet]:
    """Each task has a changelog record for each of its keys, and one instance has counted them."""
    fleet = Fleet(Case(address), settings, heartbeat_ms)
    async with AsyncProducer(bootstrap_servers=address) as producer:
        for number in range(keys):
            for partition in range(TASKS):
                key = b"key-%d-%d" % (partition, number)
                _ = await producer.send(fleet.case.input, b"x", key, partition=partition)
                fleet.case.sent[key] += 1
    one = fleet.start()
    try:
        await fleet.case.counts()
        await one.stop()
        fleet.running.clear()
        yield fleet
    finally:
        for one in fleet.running:
            one.instance.stop()
        await asyncio.gather(*(one.job for one in fleet.running))


def test_learners_replay_before_the_grant_and_without_them_all_of_the_state_is_replayed_after_it(
    servers: str,
) -> None:
    asyncio.run(_counted(servers))


async def _counted(address: str) -> None:
    async with fleet_with_state(address, WITH, 100) as fleet:
        moved = await fleet.moves()
        assert len(moved) >= 2 * TASKS
        assert {each.restored for each in moved} == {0}
        assert None not in {each.unavailable_ms for each in moved}
    for keys in (100, 300):
        async with fleet_with_state(address, WITHOUT, keys) as fleet:
            moved = await fleet.moves()
            learned = WAIT_S  # at most, at one record in a second
            assert all(each.restored <= keys for each in moved)
            # what a learner polls at once is not divided, and may be all of its first state
            late = [each for each in moved if each.restored > keys - learned]
            assert len(late) > len(moved) / 2


def test_no_task_is_without_an_owner_for_longer_than_a_heartbeat_and_a_round_trip(
    real_kafka: object,
) -> None:
    address: str = real_kafka.bootstrap_servers  # type: ignore[attr-defined]  # either broker
    asyncio.run(_bounded(address))


async def _bounded(address: str) -> None:
    async with fleet_with_state(address, WITH, 400, HEARTBEAT_MS) as fleet:
        async with fleet.case.fed():
            moved = await fleet.moves()
        assert max(each.unavailable_ms or 0 for each in moved) <= HEARTBEAT_MS + ROUND_TRIP_MS
        await fleet.case.check_exact()
