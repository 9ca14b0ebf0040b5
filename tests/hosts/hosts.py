"""The hosts: each gives the same machines a clock, a log and a way to each other."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, Protocol
from uuid import UUID

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import AdminClient, AsyncConsumer, NewTopic
from kohort.client.consumer.membership import factory, shell
from kohort.group.assignors import BUILTIN_ASSIGNORS, ClusterView
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import RequestArrived, ShardEvent, TopicsChanged
from kohort.group.coordinator.events import Tick as ShardTick
from kohort.group.coordinator.shard import Shard
from kohort.group.coordinator.topics import TopicsImage, TopicView
from kohort.group.effects import Callback
from kohort.group.events import Ownership
from kohort.group.member import leader
from kohort.group.member.classic.machine import ClassicMember
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer.machine import ConsumerMember
from kohort.group.member.draft.machine import DraftMember
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CoordinatorKnown,
    GroupMembershipOperation,
    JobDone,
    Polled,
    ResponseArrived,
    Subscribed,
    Tick,
    TopicsNamed,
)
from kohort.simulation.groups.coordinator import do_job
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.groups.world import World
from kohort.simulation.runs.scenario import MemberPlan, Scenario, TopicPlan
from kohort.types import OffsetAndMetadata
from kohort.values import replace

TOPIC, PARTITIONS = "flights", 2
ASSIGNORS = {"classic": "range", "cooperative": "cooperative-sticky"}
_STABLE = ("STABLE", "PART_OF_GROUP")
_REST_MS = 60_000
# How often to look whether the coordinator has parked a request; only how long a test takes depends
# on it.
_LOOK_S = 0.005
VANISH = GroupMembershipOperation.REMAIN_IN_GROUP


class Host(Protocol):
    """What the script asks of a host; every call returns when the group has come to rest."""

    def join(self, name: str) -> None:
        """Start a member that subscribes to the topic."""

    def commit(self, name: str, offset: int) -> None:
        """Have a member store an offset of the first partition that it owns."""

    def leave(self, name: str, operation: GroupMembershipOperation) -> None:
        """Close a member."""


def is_at_rest(machines: list[Any]) -> bool:
    """Whether all members are stable, and each has its share of the partitions."""
    if not all(each.state.name in _STABLE and not each.session.callback for each in machines):
        return False
    shares = sorted(len(each.assigned) for each in machines)
    return not shares or (sum(shares) == PARTITIONS and shares[-1] - shares[0] <= 1)


# ----------------------------------------------------------------------------------- nothing at all


class Bare:
    """No host: the machines alone, one queue, and time that jumps to what is due next."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self._now = 1_000
        self._queue: deque[Callable[[], None]] = deque()
        self._members: dict[str, Any] = {}
        self._asked: dict[int, tuple[str, int]] = {}
        self._tokens = 0
        self._shard = Shard(CoordinatorConfig(group_initial_rebalance_delay_ms=0))
        self._topics = TopicsImage.of([(TOPIC, TopicView(UUID(int=7), PARTITIONS))], TopicsImage())
        self._shard.load_started()
        self._coordinate(TopicsChanged(self._topics))
        self._shard.load_finished(self._now)

    def join(self, name: str) -> None:
        """As `Host` has it."""
        config = MemberConfig(group_id=GROUP)
        if self.protocol == "consumer":
            self._members[name] = ConsumerMember(config, f"member {name}")
        elif self.protocol == "draft":
            self._members[name] = DraftMember(config, "host")
        else:
            assignor = copy(BUILTIN_ASSIGNORS[ASSIGNORS[self.protocol]])
            self._members[name] = ClassicMember(config, (assignor,))
        self.tell(name, Subscribed(frozenset({TOPIC})))
        self.tell(name, Polled())
        self._run_until_rest()

    def commit(self, name: str, offset: int) -> None:
        """As `Host` has it."""
        machine = self._members[name]
        at = {min(machine.assigned): OffsetAndMetadata(offset)}
        self.send(name, 0, machine.commit_request(at))
        self._run_until_rest()

    def leave(self, name: str, operation: GroupMembershipOperation) -> None:
        """As `Host` has it."""
        self.tell(name, Closing(operation))
        while not self._members[name].is_closed:
            self._queue.popleft()()
        del self._members[name]
        self._run_until_rest()

    def _run_until_rest(self) -> None:
        for _ in range(10_000):
            if self._queue:
                self._queue.popleft()()
            elif is_at_rest(list(self._members.values())):
                return
            else:
                self._pass_time()
        raise AssertionError("the group does not come to rest")

    def _pass_time(self) -> None:
        due = [(each.next_deadline(), name) for name, each in self._members.items()]
        due = [(at, name) for at, name in [*due, (self._shard.next_deadline(), "")] if at]
        at, name = min(due)
        self._now = max(self._now, at)
        if name:
            self.tell(name, Tick())
        else:
            self._coordinate(ShardTick())

    def tell(self, name: str, event: Any) -> None:
        """Put an event to a member's machine, and see to what it wants."""
        if name not in self._members:
            return
        machine, later = self._members[name], self._queue.append
        effects = machine.decide(event, self._now)
        machine.install(effects.session)
        for send in effects.sends:
            later(partial(self.send, name, send.token, send.request))
        for callback in effects.callbacks:
            later(partial(self.call, name, callback))
        for job in effects.jobs:
            made = leader.compute(job, machine.assignors, ClusterView({TOPIC: PARTITIONS}))
            later(partial(self.tell, name, JobDone(job.token, made)))
        if effects.find_coordinator:
            later(partial(self.tell, name, CoordinatorKnown()))
        if getattr(machine, "unnamed", None):
            later(partial(self.tell, name, TopicsNamed(self._topics.names)))

    def call(self, name: str, callback: Callback) -> None:
        """Call the application, as the client does: its assignor first (L5)."""
        if callback.change is Ownership.ASSIGNED:
            self._members[name].tell_assignor(callback)
        self.tell(name, CallbackDone(callback.token))

    def client_id(self, name: str) -> str:
        """Return the client id of a member."""
        return name

    def send(self, name: str, token: int, request: Any) -> None:
        """Put a request to the coordinator's machine."""
        self._tokens += 1
        self._asked[self._tokens] = (name, token)
        self._coordinate(
            RequestArrived(
                token=self._tokens,
                request=request,
                version=type(request).max_version,
                client_id=self.client_id(name),
                unique_id=f"unique-{self._tokens}",
            )
        )

    def _coordinate(self, event: ShardEvent) -> None:
        effects = self._shard.decide(event, self._now)
        for record in effects.records:
            self._shard.apply(record)
        self._shard.install(effects.session)
        for reply in effects.replies:
            name, token = self._asked.pop(reply.token)
            self._queue.append(partial(self.tell, name, ResponseArrived(token, reply.response)))
        for job in (*effects.consumer_jobs, *effects.draft_jobs):
            self._queue.append(partial(self._coordinate, do_job(job, 0)))


# ----------------------------------------------------------------------------------- the simulator


class Simulated:
    """The simulator, without faults and without checkers."""

    def __init__(self, protocol: str) -> None:
        self._assignors = (ASSIGNORS[protocol],) if protocol in ASSIGNORS else ()
        topics = (TopicPlan(name=TOPIC, partitions=PARTITIONS, every_ms=0),)
        self._world = World(Scenario(seed=1, protocol=protocol, initial_delay_ms=0, topics=topics))
        self._world.begin()

    def join(self, name: str) -> None:
        """As `Host` has it."""
        # the listener is slow, so that nobody begins a rebalance before all have had the last one
        plan = MemberPlan(name=name, topics=(TOPIC,), commit="sync", listener_ms=100)
        self._world.add(replace(plan, assignors=self._assignors))
        self._run_until_rest()

    def commit(self, name: str, offset: int) -> None:
        """As `Host` has it."""
        client, answers = self._world.members[name], list[object]()
        at = {min(client.machine.assigned): OffsetAndMetadata(offset)}
        client.request("group", client.machine.commit_request(at), answers.append)
        while not answers:
            self._run()
        self._run_until_rest()

    def leave(self, name: str, operation: GroupMembershipOperation) -> None:
        """As `Host` has it."""
        client = self._world.members[name]
        client.application.closing = True
        client.ask(Closing(operation))
        while client.alive:
            self._run()
        self._run_until_rest()

    def _run_until_rest(self) -> None:
        for _ in range(10_000):
            machines = [client.machine for client in self._world.living()]
            if is_at_rest(machines):
                if machines:
                    # a target that took long to make, as chance has it, is not made again soon
                    self._run(_REST_MS)
                return
            self._run()
        raise AssertionError("the group does not come to rest")

    def _run(self, for_ms: int = 100) -> None:
        self._world.engine.run(self._world.engine.now + for_ms)


# ------------------------------------------------------------------------ the broker and the client


class Time:
    """The time of the machines behind a broker and its clients; passes only between their steps."""

    def __init__(self, broker: EmbeddedBroker, patch: pytest.MonkeyPatch) -> None:
        self._broker = broker
        self._now = int(time.monotonic() * 1000)
        coordinator = broker._running()._coordinator
        assert coordinator is not None
        self._coordinator = coordinator
        patch.setattr(coordinator, "_now", lambda: self._now)
        patch.setattr(coordinator, "_arm", lambda due: None)
        patch.setattr(shell, "now_ms", lambda: self._now)
        patch.setattr(shell.Membership, "_set_timer", lambda membership: None)

    def is_quiet(self, memberships: list[shell.Membership]) -> bool:
        """Whether nothing happens until time passes: all requests of the members are parked."""
        parked = list[int]()
        self._broker._call(lambda: parked.append(len(self._coordinator._waiting)))
        return not any(map(_is_busy, memberships)) and parked == [
            sum(len(each.unanswered) for each in memberships)
        ]

    def pass_to_next(self, memberships: dict[str, shell.Membership]) -> None:
        """Let the machine act that is due next."""
        due = [(each.member.next_deadline(), name) for name, each in memberships.items()]
        due += [(shard.next_deadline(), "") for shard in self._coordinator.shards]
        at, name = min((at, name) for at, name in due if at)
        self._now = max(self._now, at)
        if name:
            memberships[name].run(Tick())
        else:
            self._broker._call(self._coordinator._on_timer)


class OverTcp:
    """Two hosts: the embedded broker has the coordinator's machine, clients have the members'."""

    def __init__(self, protocol: str, servers: str, runner: asyncio.Runner, clock: Time) -> None:
        self._servers, self._runner, self._clock = servers, runner, clock
        self._members: dict[str, AsyncConsumer] = {}
        self._settings: dict[str, Any] = {"group_protocol": protocol}
        if protocol in ASSIGNORS:
            self._settings = {"partition_assignment_strategy": ASSIGNORS[protocol]}

    def join(self, name: str) -> None:
        """As `Host` has it."""

        async def join() -> None:
            consumer = self._members[name] = AsyncConsumer(
                bootstrap_servers=self._servers,
                group_id=GROUP,
                client_id=name,
                enable_auto_commit=False,
                **self._settings,
            )
            consumer.subscribe([TOPIC])
            await self._rest()

        self._runner.run(join())

    def commit(self, name: str, offset: int) -> None:
        """As `Host` has it."""

        async def commit() -> None:
            consumer = self._members[name]
            await consumer.commit({min(consumer.assignment()): OffsetAndMetadata(offset)})
            await self._rest()

        self._runner.run(commit())

    def leave(self, name: str, operation: GroupMembershipOperation) -> None:
        """As `Host` has it."""

        async def leave() -> None:
            await self._members.pop(name).close(operation=operation)
            await self._rest()

        self._runner.run(leave())

    def stop(self) -> None:
        """Close whoever is left, as after a failure."""
        for name in list(self._members):
            self._runner.run(self._members.pop(name).close())

    async def _rest(self) -> None:
        deadline = time.monotonic() + 60
        memberships = {name: _membership(each) for name, each in self._members.items()}
        while True:
            assert time.monotonic() < deadline, "the group does not come to rest"
            if not any(map(_is_completing, memberships.values())):
                for each in self._members.values():
                    await each.poll(0)
            if not self._clock.is_quiet(list(memberships.values())):
                await self._wait([task for each in memberships.values() for task in each._tasks])
            elif is_at_rest([each.member for each in memberships.values()]):
                return
            else:
                self._clock.pass_to_next(memberships)

    async def _wait(self, tasks: list[asyncio.Task[None]]) -> None:
        """Let members go on; a task whose request is parked does not end."""
        if tasks:
            await asyncio.wait(tasks, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(0)


def _is_busy(membership: shell.Membership) -> bool:
    """Whether it does something other than wait for answers."""
    is_working = len(membership._tasks) > len(membership.unanswered)
    return is_working or bool(membership.callbacks or membership.member.session.callback)


def _is_completing(membership: shell.Membership) -> bool:
    """Whether it waits for an assignment; who has his must not begin the next rebalance yet."""
    return bool(membership.member.state.name == "COMPLETING_REBALANCE")


def _membership(consumer: AsyncConsumer) -> shell.Membership:
    membership = consumer._core.membership
    assert membership is not None
    return membership


@contextmanager
def over_tcp(protocol: str) -> Iterator[OverTcp]:
    """A broker, and clients in a loop of their own, in a time of their own.

    In real time a busy processor decides which of two timers comes first, and whether a target
    took so long that it is not made again at once.
    """
    broker = EmbeddedBroker(
        protocols=("classic", "consumer", "draft"), group_initial_rebalance_delay_ms=0
    )
    with broker, asyncio.Runner() as runner, pytest.MonkeyPatch.context() as as_alone:
        # With earlier heartbeats a member may get in two steps what the machines alone get in one.
        as_alone.setattr(factory, "FIRST_HEARTBEAT_PART", 1)
        as_alone.setattr(factory, "_wall_clock_ahead_ms", lambda: None)
        with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
        clock = Time(broker, as_alone)
        host = OverTcp(protocol, broker.bootstrap_servers, runner, clock)
        try:
            yield host
        finally:
            host.stop()
