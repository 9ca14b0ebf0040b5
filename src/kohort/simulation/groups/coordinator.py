"""The shell of the coordinator's machine: two nodes, one log, and their faults.

Like the broker's shell, it decides, appends, applies, installs and replies, but with a log and a
clock that the simulation controls.
"""

from __future__ import annotations

from functools import cache
from typing import cast

from kohort.broker.coordination.jobs import do_consumer_job, regex_error, share_out
from kohort.errors import ErrorCode
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.consumer.decision import ConsumerJob, TargetJob
from kohort.group.coordinator.events import (
    JobDone,
    RequestArrived,
    ShardEvent,
    Tick,
    TopicsChanged,
    Unload,
)
from kohort.group.coordinator.jobs import DraftAssignmentJob, DraftJobDone, Job, NewTarget
from kohort.group.coordinator.refusals import refuse
from kohort.group.coordinator.session import Lifecycle
from kohort.group.coordinator.shard import Shard, ShardSession
from kohort.group.effects import Effects
from kohort.simulation.groups.base import BaseCoordinator, BaseNode, BaseWorld
from kohort.simulation.groups.facts import Answered, Decided, Loaded, Stepped
from kohort.simulation.groups.network import Connection, Pending
from kohort.simulation.runs.scenario import Scenario
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.client_assignors import ConsumerGroupInstallAssignmentRequest
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.draft import DraftJoinGroupRequest
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.membership import JoinGroupRequest, SyncGroupRequest

# Time of day at the start of every run, in milliseconds since 1970.
WALL_MS = 1_357_000_000_000
# The requests that may be parked.
_PARKED = (
    JoinGroupRequest,
    SyncGroupRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupInstallAssignmentRequest,
    DraftJoinGroupRequest,
)
# More deadlines at the same moment than any group has.
_TICKS_MAX = 1_000

__all__ = ["Job", "do_job", "may_fail"]


class Node(BaseNode):
    """A broker that is, was or may become the group's coordinator.

    Attributes:
        epoch: The leader epoch that it believes to have; appends with an old epoch fail.
        refuse_appends: The code with which the log refuses the next append; None: it accepts it.
        wall_skew_ms: How far its time of day is ahead.
    """

    def __init__(self, name: str, world: BaseWorld) -> None:
        self.name = name
        self.alive = True
        self.paused_until = 0
        self.epoch = -1
        self.shard = Shard(world.config)
        self.crash_at = ""
        self.refuse_appends: ErrorCode | None = None
        self.answers: dict[str, ErrorCode] = {}
        self.wall_skew_ms = 0
        self._world = world
        self._armed = -1
        # The part of the log read at the start of loading, and the offset of the rest, which is
        # read at the end: the log may be compacted in between.
        self._read: tuple[list[GroupRecord], int] = ([], 0)
        self._waiting: dict[int, tuple[Connection, Pending, RequestArrived[Message]]] = {}

    # ------------------------------------------------------------------------------- requests

    def receive(self, connection: Connection, pending: Pending) -> None:
        """Handle a request."""
        world = self._world
        world.tokens += 1
        token = world.tokens
        arrived = RequestArrived(
            token=token,
            request=pending.request,
            version=pending.version,
            client_id=connection.client.name,
            client_host="/127.0.0.1",
            unique_id=f"{token:08d}",
            wall_ms=self._wall_ms(),
            regex_error=regex_error(pending.request, world.config.group_member_max_bytes),
        )
        self.tell_topics()
        self._waiting[token] = (connection, pending, arrived)
        if self.answers:
            kind = type(pending.request).__name__
            code = self.answers.pop(kind, None)
            code = code or self.answers.pop(f"{connection.client.name} {kind}", None)
            if code is not None:
                request = cast("Request[Message]", pending.request)
                world.note("injected error")
                self._release(token, refuse(request, pending.version, code))
                return
        self.run(arrived)
        if token in self._waiting and not isinstance(pending.request, _PARKED):
            world.fail("S3", f"{type(pending.request).__name__} is not answered")

    def run(self, event: ShardEvent) -> None:
        """Pass an event to the machine, and carry out its effects."""
        world = self._world
        session, log = self.shard.session, self.shard.log
        try:
            effects = self.shard.decide(event, world.engine.now)
        except Exception as error:  # noqa: BLE001  # any error of a machine is a finding
            world.machine_failed("coordinator", error)
            self.crash(world.CRASH_RESTART_MS)
            return
        if world.tracing:
            world.trace.coordinator(world.engine.now, self.name, event, effects)
        if self.crash_at and self._dies(effects):
            return
        if effects.records and not self._append(event, effects):
            return
        self.shard.install(effects.session)
        if world.checking:
            world.check(Stepped(self, event, session, log, effects))
            if effects.records or effects.observed:
                world.check(Decided(self, event, effects))
        for reply in effects.replies:
            self._release(reply.token, reply.response)
        world.observe_coordinator(self, effects)
        for job in (*effects.consumer_jobs, *effects.draft_jobs):
            world.engine.after(world.coordinator_job_ms(), self, self._do, self.shard, job)
        self._rearm()

    def _do(self, shard: Shard, job: Job) -> None:
        """Run a job, unless the shard that started it is gone."""
        if self.shard is shard and shard.state is Lifecycle.READY:
            fails = may_fail(job) and self._world.job_fails()
            self.run(do_job(job, self._wall_ms(), fails=fails))

    def tell_topics(self) -> None:
        """Pass the present topics to the shard before it answers."""
        image = self._world.image
        known = self.shard.session.topics
        if known is not image and self.shard.state is not Lifecycle.DOWN:
            self.run(TopicsChanged(image))

    def _append(self, event: ShardEvent, effects: Effects[ShardSession]) -> bool:
        world, log = self._world, self._world.log
        code = ErrorCode.NOT_COORDINATOR if self.epoch != log.leader_epoch else self.refuse_appends
        if code is not None:
            world.note("append failed")
            self.refuse_appends = None
            self.demote(event, code)
            return False
        log.append(effects.records)
        for record in effects.records:
            self.shard.apply(record)
        world.recorded(self, effects.records)
        return True

    def _release(self, token: int, response: Message) -> None:
        world = self._world
        entry = self._waiting.pop(token, None)
        if entry is None:
            world.fail("S3", f"an answer to a request that waits for none: {type(response)}")
            return
        connection, pending, arrived = entry
        if world.checking:
            asked, said = type(arrived.request).__name__, type(response).__name__
            if not _answers(said, asked):
                world.fail("S3", f"{asked} is answered with {said}")
            world.check(Answered(self, arrived, response, pending.is_copy))
        world.network.answer(connection, pending, response)

    @property
    def waiting(self) -> int:
        """Return the number of unanswered requests."""
        return len(self._waiting)

    @property
    def waiting_tokens(self) -> frozenset[int]:
        """Return the tokens of the unanswered requests."""
        return frozenset(self._waiting)

    def is_copy(self, token: int) -> bool:
        """Return whether the request being handled was sent before."""
        entry = self._waiting.get(token)
        return entry is not None and entry[1].is_copy

    # ------------------------------------------------------------------------------- time

    def _wall_ms(self) -> int:
        return WALL_MS + self._world.engine.now + self.wall_skew_ms

    def _rearm(self) -> None:
        due = self.shard.next_deadline()
        if due is not None and (self._armed < 0 or due < self._armed):
            self._armed = due
            self._world.engine.at(due, self, self._ring, due)

    def _ring(self, armed: int) -> None:
        if armed != self._armed:
            return
        self._armed = -1
        now = self._world.engine.now
        for _ in range(_TICKS_MAX):
            due = self.shard.next_deadline()
            if not self.alive or due is None or due > now:
                break
            self.run(Tick(self._wall_ms()))
        else:
            self._world.fail("S18", "deadlines that are due are never dealt with")
        if self.alive:
            self._rearm()

    # ------------------------------------------------------------------------- life and death

    def load(self, epoch: int, takes_ms: int) -> None:
        """Become the leader: read the log, which takes a while, then answer."""
        self._unload()
        self.epoch = epoch
        log = self._world.log
        log.open()
        self._read = log.read(end=log.middle), log.middle
        self.shard = Shard(self._world.config)
        self.shard.load_started()
        self.tell_topics()
        self._world.engine.after(takes_ms, self, self._loaded, epoch)

    def _loaded(self, epoch: int) -> None:
        world = self._world
        if self.epoch != epoch or self.shard.state is not Lifecycle.CATCH_UP:
            return
        first_half, at = self._read
        for record in (*first_half, *world.log.read(start=at)):
            self.shard.apply(record)
        if self is world.coordinator.leader:
            world.ledger.loaded(self.shard.log)
        observed = self.shard.load_finished(world.engine.now)
        world.observe(observed)
        if world.tracing:
            world.trace.line(world.engine.now, self.name, "loaded", f"epoch {epoch}")
        if world.checking:
            world.check(Loaded(self, observed))
        world.coordinator.loaded(self)
        self._rearm()

    def demote(self, event: ShardEvent | None, code: ErrorCode) -> None:
        """Discard the shard, as after a failed append, and load again if the node still leads."""
        world = self._world
        if isinstance(event, RequestArrived):
            request = cast("Request[Message]", event.request)
            self._release(event.token, refuse(request, event.version, code))
        self._unload()
        self.shard = Shard(world.config)
        if self.epoch == world.log.leader_epoch:
            self.load(self.epoch, 50)

    def _unload(self) -> None:
        """Refuse parked requests, because another node leads now (C73)."""
        if self.shard.state is not Lifecycle.DOWN:
            for reply in self.shard.decide(Unload(), self._world.engine.now).replies:
                self._release(reply.token, reply.response)
        for connection, _, _ in self._waiting.values():
            self._world.fail("S3", f"{connection.client.name} is left without an answer")
        self._waiting.clear()

    def _dies(self, effects: Effects[ShardSession]) -> bool:
        """Die while carrying out a decision, if it has work to do."""
        if not effects.records:
            return False
        world, where = self._world, self.crash_at
        self.crash_at = ""
        if self.epoch != world.log.leader_epoch:
            return False
        world.note(f"coordinator died {where}")
        if where != "before append":
            world.log.append(effects.records)
        if where == "in append":
            world.log.lose_end()
        elif where == "after a reply":
            for record in effects.records:
                self.shard.apply(record)
            world.recorded(self, effects.records)
            for reply in effects.replies[:1]:
                self._release(reply.token, reply.response)
        elif where == "after append":
            world.recorded(self, effects.records)
        self.crash(world.CRASH_RESTART_MS)
        return True

    def crash(self, restart_ms: int) -> None:
        """Kill the process; the other node takes over, and this one restarts later."""
        world = self._world
        world.disturbed()
        self.alive = False
        self._waiting.clear()
        self._armed = -1
        self.crash_at, self.refuse_appends = "", None
        self.answers.clear()
        world.coordinator.drop_connections(self)
        world.coordinator.node_died(self)
        world.engine.after(restart_ms, None, self._restart)

    def _restart(self) -> None:
        self.alive = True
        self.epoch = -1
        self.shard = Shard(self._world.config)
        self._world.coordinator.node_is_back(self)


class Coordinator(BaseCoordinator):
    """The cluster's controller, which chooses the coordinating node."""

    # How long until a dead or lost leader is replaced.
    DETECTION_MS = 500

    def __init__(self, world: BaseWorld) -> None:
        self._world = world
        self.nodes: tuple[Node, Node] = (Node("broker-1", world), Node("broker-2", world))
        self.leader: Node | None = self.nodes[0]
        self.failovers = 0
        # Topics deleted while no node was up.
        self.untold: set[str] = set()

    @property
    def ready(self) -> Node | None:
        """Return the leader, if it answers."""
        leader = self.leader
        is_ready = leader is not None and leader.alive and leader.shard.state is Lifecycle.READY
        return leader if is_ready else None

    def start(self) -> None:
        """Start the first leader."""
        self.nodes[0].load(self._world.log.leader_epoch, 0)

    def move(self, load_ms: int, zombie_ms: int) -> None:
        """Have the other node lead; the old one continues to answer for a while.

        Args:
            load_ms: How long the new leader takes to read the log.
            zombie_ms: How long the old leader does not notice.
        """
        old = self.leader
        new = self.nodes[1] if old is self.nodes[0] else self.nodes[0]
        if not new.alive:
            return
        self.failovers += 1
        world = self._world
        world.disturbed()
        world.log.leader_epoch += 1
        self.leader = new
        if old is not None and old.alive:
            world.engine.after(zombie_ms, old, self._learn, old, old.epoch)
        new.load(world.log.leader_epoch, load_ms)

    def _learn(self, old: Node, epoch: int) -> None:
        """Notify an old leader that it no longer leads."""
        if old.epoch == epoch and old is not self.leader:
            old.demote(None, ErrorCode.NOT_COORDINATOR)

    def node_died(self, node: BaseNode) -> None:
        """Schedule the other node's leadership."""
        if node is self.leader:
            self.leader = None
            self._world.engine.after(self.DETECTION_MS, None, self._elect)

    def _elect(self) -> None:
        if self.leader is not None:
            return
        alive = [node for node in self.nodes if node.alive]
        if alive:
            self.failovers += 1
            self._world.log.leader_epoch += 1
            self.leader = alive[-1]
            alive[-1].load(self._world.log.leader_epoch, 100)

    def node_is_back(self, _node: BaseNode) -> None:
        """Have the node lead if there is no leader."""
        self._elect()

    def drop_connections(self, node: BaseNode) -> None:
        """Break every client's connection to a node."""
        for client in self._world.living():
            client.connection_lost(node)

    def loaded(self, node: BaseNode) -> None:
        """Pass a ready leader the events that happened meanwhile."""
        if self.untold and node is self.leader:
            topics = frozenset(self.untold - self._world.topics.present.keys())
            self.untold.clear()
            self._world.tell_topics_deleted(topics)


@cache
def _answers(response: str, request: str) -> bool:
    """Return whether a response belongs to such a request, by their class names."""
    return response == f"{request.removesuffix('Request')}Response"


def make_config(scenario: Scenario) -> CoordinatorConfig:
    """Return the coordinator's settings for a run."""
    return CoordinatorConfig(
        group_initial_rebalance_delay_ms=scenario.initial_delay_ms,
        group_max_size=scenario.group_max_size,
        group_consumer_migration_policy=scenario.migration_policy,
        offsets_retention_ms=scenario.retention_ms,
        offsets_retention_check_interval_ms=min(scenario.retention_ms, 600_000),
    )


def may_fail(job: Job) -> bool:
    """Return whether a job runs an assignor of the coordinator, which may raise."""
    return isinstance(job, (DraftAssignmentJob, TargetJob))


def do_job(job: Job, wall_ms: int, *, fails: bool = False) -> JobDone | DraftJobDone:
    """Run a job, and return the event with its result.

    Args:
        job: The job.
        wall_ms: Time of day in milliseconds since 1970.
        fails: Whether its assignor raises.
    """
    if isinstance(job, DraftAssignmentJob):
        return DraftJobDone(job, None) if fails else share_out(job)
    asked = cast("ConsumerJob", job)
    result = NewTarget(error="the assignor raised") if fails else do_consumer_job(asked)
    return JobDone(asked.token, asked.group_id, result, wall_ms)
