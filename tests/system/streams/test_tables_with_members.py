"""The six tables of the draft with instances that run, on both brokers, in mode `draft`.

A test plays a table's steps in the order in which it prints them: no member joins before all have
done what the step says of them, and a learner replays nothing before it is to be ready. What
members joined with and what they were given is read from the leader's assignor, as it was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from threading import Event
from typing import Any

import pytest

from kohort import AdminClient, AsyncConsumer, AsyncProducer, TopicPartition
from kohort.errors import KafkaError
from kohort.group.assignors.interface import Assignment, ClusterView
from kohort.group.subscription import Subscription
from kohort.streams.assignment.metadata import (
    Instructions,
    decode_claim,
    decode_instructions,
    encode_instructions,
)
from kohort.streams.assignment.settings import LearnerSettings
from kohort.streams.assignor import LearnerAssignor
from kohort.streams.events import RebalanceAsked, TasksChanged
from kohort.streams.runtime.holding import Role
from kohort.streams.runtime.restoring import Restorer
from kohort.streams.settings import StreamSettings
from tests.streams.assignment.test_tables import TABLES, Rows, Step, Table, named, rows, task
from tests.streams.counting import WAIT_S, Running, waiting
from tests.streams.feeding import Case

Row = tuple[frozenset[str], frozenset[str], frozenset[str]]

pytestmark = pytest.mark.timeout(240)

# The draft's leader has lost who is new; here newcomers say so (KIP-792), and the idle one learns.
KNOWN_NEWCOMERS = {"S2[T2 T3 T4 T5] S3[T1] S4[]": "S2[T2 T3 T4 T5] S3[T1|T4] S4[|T5]"}


class Ledger:
    """What members joined with and were given, in each rebalance of a group.

    Attributes:
        before: What the first line of the table gives each member; it is given once all are there.
        joined: What members had when they joined, by rebalance.
        given: What they got.
    """

    def __init__(self, before: str) -> None:
        self.before = {name: active for name, (active, _, _) in rows(before, {}).items()}
        self.joined: list[Rows] = []
        self.given: list[Rows] = []
        self.gates: dict[str, Event] = {}

    def assignor(self, *given: Any) -> LearnerAssignor:
        """Make the assignor of one instance."""
        return WatchedAssignor(self, *given)


class WatchedAssignor(LearnerAssignor):
    """Notes what the group was told, and joins only when the test says so."""

    def __init__(self, ledger: Ledger, *given: Any) -> None:
        super().__init__(*given)
        self._ledger = ledger
        self._gate = ledger.gates.setdefault(given[2]["name"], Event())

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        assert self._gate.wait(WAIT_S)
        return super().subscription_user_data(topics)

    def assign_with_user_data(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        found = super().assign_with_user_data(cluster, subscriptions)
        ledger = self._ledger
        if ledger.before:
            is_complete = set(map(name_of, subscriptions)) == set(ledger.before)
            found = {m: self._first(name_of(m), is_complete) for m in subscriptions}
            self._rejoin = ""
            if is_complete:
                ledger.before = {}
        ledger.joined.append({name_of(m): self._said(e) for m, e in subscriptions.items()})
        ledger.given.append({name_of(m): self._told(m, e) for m, e in found.items()})
        return found

    def _first(self, name: str, is_complete: bool) -> Assignment:
        tasks = map(task, self._ledger.before[name] if is_complete else ())
        return Assignment(
            self._topology.inputs(tasks), encode_instructions(Instructions(is_draft=True))
        )

    def _said(self, said: Subscription) -> Row:
        claim = decode_claim(said.user_data or b"")
        active = self._topology.tasks_of(said.owned)
        return named(active), named(claim.learning), named(claim.revoked)

    def _told(self, member: str, told: Assignment) -> Row:
        active = named(self._topology.tasks_of(told.partitions))
        revoked = self._ledger.joined[-1][name_of(member)][2]
        return active, named(decode_instructions(told.user_data or b"").learning), revoked - active


def name_of(member: str) -> str:
    return member.split("-", maxsplit=1)[0]


class HeldRestorer(Restorer):
    """Replays for learners only when the test says so; a granted task waits for nothing."""

    is_allowed = False

    def _arrange(self) -> None:
        super()._arrange()
        if not self.is_allowed:
            self.consumer.pause(*(p for p, each in self._replays.items() if not each.is_urgent))

    def allow(self) -> None:
        self.is_allowed = True
        self._arrange()


class Play:
    """One table on one broker."""

    def __init__(self, case: Case, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        self.case = case
        self.table = table
        self.ledger = Ledger(table.before)
        self.members: dict[str, Running] = {}
        monkeypatch.setattr("kohort.streams.runtime.running.LearnerAssignor", self.ledger.assignor)
        monkeypatch.setattr("kohort.streams.runtime.running.Restorer", HeldRestorer)

    def start(self, name: str) -> None:
        settings = StreamSettings(
            learners=LearnerSettings(
                handover="draft", rollout=self.table.rollout, acceptable_recovery_lag=0
            ),
            client_tags={"name": name},
            commit_interval_ms=50,
            lag_interval_ms=20,
        )
        self.ledger.gates.setdefault(name, Event()).set()
        self.members[name] = Running(
            self.case.application(),
            self.case.address,
            settings,
            client_id=name,
            heartbeat_interval_ms=200,
        )

    async def until_changed(self, wanted: Rows) -> None:
        """Wait until all members have what they are to have."""
        for name, (active, learning, _) in wanted.items():
            one = self.members[name]

            await one.until(partial(_has, one, active, learning))

    async def begin(self) -> None:
        """Bring the group to the first line of the table, each task with state."""
        for name in rows(self.table.before, {}):
            self.start(name)
        await self.until_changed(rows(self.table.before, {}))
        async with AsyncProducer(bootstrap_servers=self.case.address) as producer:
            await self.case.send(producer, 200)
        if self.members:
            await self.case.counts()
            await self._until_stored()

    async def _until_stored(self) -> None:
        """Wait for the commits after the counts: a learner of an empty changelog is ready."""
        (changelog,) = self.case.application().changelogs[0]
        parts = [TopicPartition(changelog, number) for number in range(self.case.tasks)]
        ends: dict[TopicPartition, int] = {}
        async with (
            waiting(WAIT_S, lambda: f"the changelogs end at {ends}"),
            AsyncConsumer(bootstrap_servers=self.case.address) as consumer,
        ):
            while sum(ends.values()) < self.case.sent.total():
                ends = await consumer.end_offsets(parts)

    async def step(self, step: Step) -> int:
        """Have happen what a step says; return the number of its rebalance."""
        known = len(self.ledger.given)
        dying = step.dies.split()
        for name in self.members.keys() - dying:
            self.ledger.gates[name].clear()
        for name in dying:
            await self.members.pop(name).stop()
        for name in step.joins.split():
            self.start(name)
        await self._until_inside(self.members)
        for name in step.ready.split():
            self.members[name].instance._owning.restorer.allow()  # type: ignore[union-attr]  # it is a HeldRestorer
            await self._until_asked(name, "learned")
        for name in step.leaving.split():
            self.members[name].instance.leave_soon()
            await self._until_asked(name, "leaving")
        for gate in self.ledger.gates.values():
            gate.set()
        return known

    async def _until_asked(self, name: str, why: str) -> None:
        one = self.members[name]
        await one.until(lambda: any(e.reason.startswith(why) for e in one.of(RebalanceAsked)))

    async def _until_inside(self, names: Iterable[str]) -> None:
        wanted, found = set(names), set[str]()
        with AdminClient(bootstrap_servers=self.case.address) as admin:
            async with waiting(WAIT_S, lambda: f"{sorted(found)} are in, not {sorted(wanted)}"):
                while found != wanted:
                    with suppress(KafkaError):  # there is no such group yet
                        group = await asyncio.to_thread(admin.describe_groups, [self.case.name])
                        found = {name_of(m.member_id) for m in group[self.case.name].members}

    async def seen(self) -> str:
        """Say what the coordinator and each member saw last."""
        group = "the coordinator cannot be asked"
        with suppress(KafkaError), AdminClient(bootstrap_servers=self.case.address) as admin:
            group = str(await asyncio.to_thread(admin.describe_groups, [self.case.name]))
        gates = {name: each.is_set() for name, each in self.ledger.gates.items()}
        members = [f"{name}: {each.seen()}" for name, each in self.members.items()]
        given = [f"given {number}: {each}" for number, each in enumerate(self.ledger.given)]
        return "\n".join((f"may join: {gates}", group, *members, *given))

    async def end(self) -> None:
        """Every task is processed where the table has it, and no record was lost or repeated."""
        last = rows(self.table.steps[-1].assigned, self.table.renamed)
        for name, (active, _, _) in last.items():
            one = self.members[name]
            if active:
                await one.until(partial(_runs, one, len(active)))
        async with AsyncProducer(bootstrap_servers=self.case.address) as producer:
            await self.case.send(producer, 200)
        await self.case.check_exact()


def _has(one: Running, active: frozenset[str], learning: frozenset[str]) -> bool:
    last = one.of(TasksChanged)[-1:]
    return [(named(e.active), named(e.learning)) for e in last] == [(active, learning)]


def _runs(one: Running, count: int) -> bool:
    return list(one.instance.tasks.values()).count(Role.RUNNING) == count


@asynccontextmanager
async def playing(
    address: str, table: Table, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Play]:
    play = Play(Case(address, 4 if table.before.endswith("S2[T3 T4]") else 5), table, monkeypatch)
    try:
        yield play
    except Exception as error:
        error.add_note(await play.seen())
        raise
    finally:
        for gate in play.ledger.gates.values():
            gate.set()
        for one in play.members.values():
            one.instance.stop()
        await asyncio.gather(*(one.job for one in play.members.values()))


@pytest.mark.parametrize("name", TABLES)
def test_table(servers: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_played(servers, TABLES[name], monkeypatch))


async def _played(address: str, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing(address, table, monkeypatch) as play:
        await play.begin()
        for number, step in enumerate(table.steps, start=1):
            at = await play.step(step)
            wanted = rows(KNOWN_NEWCOMERS.get(step.assigned, step.assigned), table.renamed)
            await play.until_changed(wanted)
            if step.join:
                assert play.ledger.joined[at] == rows(step.join, table.renamed), f"join {number}"
            assert play.ledger.given[at] == wanted, f"assignment {number}"
        await play.end()
