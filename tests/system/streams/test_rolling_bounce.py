"""From eager to cooperative rebalances, instance by instance, in a group of type `consumer`.

No version of the runtime was eager. So the old instances here have an assignor of the same name
that gives everything up before each rebalance, as Kafka Streams did before KIP-429.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from kohort import AsyncProducer
from kohort.group.assignors.interface import RebalanceProtocol
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignor import LearnerAssignor
from kohort.streams.events import StreamsEvent, TaskReleased, TaskStarted
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings
from tests.streams.counting import Running
from tests.streams.feeding import TASKS, Case

OLD, NEW = "eager", "cooperative"
pytestmark = pytest.mark.timeout(240)


class EagerAssignor(LearnerAssignor):
    """Has its member give everything up before each rebalance."""

    supported_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)


def by_tag(*given: Any) -> LearnerAssignor:
    """Make the assignor of an instance, of the kind that its tags say."""
    return (EagerAssignor if given[2]["kind"] == OLD else LearnerAssignor)(*given)


class Watched(Running):
    """An instance; no other one may process a task that it starts."""

    def __init__(self, fleet: list[Watched], case: Case, kind: str) -> None:
        settings = StreamSettings(
            learners=LearnerSettings(max_warmup_learners=None, acceptable_recovery_lag=0),
            client_tags={"kind": kind},
            commit_interval_ms=100,
            lag_interval_ms=50,
        )
        self.second_owners: list[str] = []
        self._fleet = fleet
        super().__init__(case.application(), case.address, settings, heartbeat_interval_ms=200)

    def _note(self, event: StreamsEvent) -> None:
        if isinstance(event, TaskStarted):
            owners = [each for each in self._fleet if event.task in running(each)]
            if owners != [self]:
                self.second_owners.append(f"{event.task} has {len(owners)} owners")
        super()._note(event)


def running(one: Running) -> set[object]:
    return {task for task, role in one.instance.tasks.items() if role is Role.RUNNING}


class Fleet:
    """Instances of one application; those that were stopped count, too."""

    def __init__(self, case: Case) -> None:
        self.every: list[Watched] = []
        self._case = case

    def start(self, kind: str) -> Watched:
        self.every.append(Watched(self.every, self._case, kind))
        return self.every[-1]

    async def settled(self) -> None:
        """Wait until all tasks are processed, by as many instances as run, and evenly."""
        live = [each for each in self.every if not each.job.done()]
        for one in live:
            await one.until(lambda: self._is_even(live))

    def _is_even(self, live: list[Watched]) -> bool:
        counts = [len(running(each)) for each in live]
        return sum(counts) == TASKS and max(counts) - min(counts) <= 1

    def released(self) -> int:
        return sum(len(each.of(TaskReleased)) for each in self.every)


@asynccontextmanager
async def fleet_of(case: Case) -> AsyncIterator[Fleet]:
    fleet = Fleet(case)
    try:
        yield fleet
    finally:
        live = [each for each in fleet.every if not each.job.done()]
        for one in live:
            one.instance.stop()
        await asyncio.gather(*(one.job for one in live))


def test_a_rolling_bounce_leads_from_eager_to_cooperative_and_counts_each_record_once(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-429, "Streams": both kinds are members of one group, whichever of them leads."""
    monkeypatch.setattr("kohort.streams.runtime.running.LearnerAssignor", by_tag)
    asyncio.run(_bounced(Case(servers)))


async def _bounced(case: Case) -> None:
    async with AsyncProducer(bootstrap_servers=case.address) as producer:
        await case.send(producer, 200)
    async with fleet_of(case) as fleet:
        old = [fleet.start(OLD)]
        await fleet.settled()
        async with case.fed():
            old.append(fleet.start(OLD))
            await fleet.settled()
            assert len(old[0].of(TaskReleased)) >= TASKS  # it gave up more than what moved
            for one in old:
                fleet.start(NEW)
                await fleet.settled()
                await one.stop()
                await fleet.settled()
            before = fleet.released()
            fleet.start(NEW)
            await fleet.settled()
            assert fleet.released() - before < TASKS  # what stays is not given up any more
        await case.check_exact()
        assert [text for each in fleet.every for text in each.second_owners] == []
