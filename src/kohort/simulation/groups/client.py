"""The shell of a member's machine: clock, connections, look-ups and jobs."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

from kohort.errors import ErrorCode, KohortError, LocalProtocolError
from kohort.group.assignors import ClusterView
from kohort.group.effects import AssignmentJob, Callback, Effects, Send, SubscriptionJob
from kohort.group.member import leader
from kohort.group.member.config import FIRST_HEARTBEAT_PART, MemberConfig
from kohort.group.member.consumer import client_assignors
from kohort.group.member.events import (
    CoordinatorKnown,
    JobDone,
    LookupFailed,
    MemberEvent,
    RejoinAsked,
    RequestFailed,
    ResponseArrived,
    Tick,
    TopicsNamed,
)
from kohort.simulation.engine import Stream
from kohort.simulation.faults.members import spoiled
from kohort.simulation.groups.base import REQUEST_TIMEOUT_MS, BaseClient, BaseNode, BaseWorld
from kohort.simulation.groups.facts import Moved, Refused, Told
from kohort.simulation.groups.ledger import GROUP
from kohort.simulation.groups.network import Connection, Done, Pending
from kohort.simulation.groups.protocols import assignors_of, is_eager, protocol_of
from kohort.simulation.runs.scenario import MemberPlan
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupPrepareAssignmentRequest,
)
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.membership import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

_NAMES_MS = 5
_ASKING_MS = 1
_RETRY_MS = 500
_TICK = Tick()
_TICKS_MAX = 1_000
# Jobs in which a member computes its group's assignment.
_COMPUTES = (ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest)
# Requests that show that the member is alive.
_BEATS = (HeartbeatRequest, DraftHeartbeatRequest, ConsumerGroupHeartbeatRequest)
# Requests for membership.
_JOINS = (JoinGroupRequest, ConsumerGroupHeartbeatRequest, DraftJoinGroupRequest)
# States between the rounds of a cooperative rebalance.
_BETWEEN = frozenset({"REVOKING", "PREPARING_REBALANCE", "COMPLETING_REBALANCE", "ASSIGNING"})
# Requests that wait for other members.
_PARKED = (JoinGroupRequest, SyncGroupRequest, DraftJoinGroupRequest)


class Client(BaseClient):
    """One process with one member, from its start to its end."""

    def __init__(self, world: BaseWorld, plan: MemberPlan, life: int) -> None:
        self.name = plan.name
        self.plan = plan
        self.life = life
        self.alive = True
        self.paused_until = 0
        self.up_blocked_until = 0
        self.down_blocked_until = 0
        self.crash_at = ""
        self.breaks_computing = False
        self.on_beat: Callable[[], None] | None = None
        self.world = world
        self.protocol = protocol_of(plan, world.scenario.protocol)
        self.assignors = assignors_of(plan, self.protocol, world.assignors_for(self))
        self.is_eager = is_eager(self.protocol, self.assignors)
        chance = Stream(world.scenario.seed, "client", f"{plan.name}#{life}")
        self.machine = self.protocol.make(
            _config(plan, 0.8 + 0.4 * chance.uniform()), self.assignors, f"{plan.name}-{life}"
        )
        self._shape = self._seen()
        self._rate = 1_000_000 + plan.drift_ppm
        self._offset = chance.between(0, 1_000_000_000)
        self._armed = -1
        self._node: BaseNode | None = None
        self._connections: dict[str, Connection] = {}
        self._opened = 0
        self._sent = 0
        self._asking_names = False
        self._counts: dict[str, int] | None = None
        self.metadata: dict[str, int] = world.topics.counts()
        self.looks_at_old_leader = False
        self.application = world.application(self)

    # ------------------------------------------------------------------------------- time

    def now(self) -> int:
        """Return the time on its own clock, which starts anywhere and may run fast or slow."""
        return self._offset + self.world.engine.now * self._rate // 1_000_000

    def _true_time(self, local: int) -> int:
        return -(-(local - self._offset) * 1_000_000 // self._rate)

    def skip(self, by_ms: int) -> None:
        """Set the process's clock forward."""
        self._offset += by_ms
        self._armed = -1
        self._rearm()

    def _rearm(self) -> None:
        due = self.machine.next_deadline()
        if due is None:
            return
        at = self._true_time(due)
        if self._armed < 0 or at < self._armed:
            self._armed = at
            self.world.engine.at(at, self, self._ring, at)

    def _ring(self, armed: int) -> None:
        if armed != self._armed:
            return
        self._armed = -1
        now = self.now()
        for _ in range(_TICKS_MAX):
            due = self.machine.next_deadline()
            if not self.alive or due is None or due > now:
                break
            self.tell(_TICK)
        else:
            self.world.fail("S18", f"{self.name} never deals with a deadline that is due")
        if self._armed < 0:
            self._rearm()

    # ------------------------------------------------------------------------------- the machine

    def tell(self, event: MemberEvent) -> None:
        """Pass an event to the machine, and carry out its effects."""
        try:
            self._tell(event)
        except LocalProtocolError as error:
            self._refused(event)
            self.world.machine_failed(self.name, error)
            self.die(self.world.CRASH_RESTART_MS)

    def _tell(self, event: MemberEvent) -> None:
        if not self.alive:
            return
        world, machine = self.world, self.machine
        session, now = machine.session, self.now()
        try:
            effects = machine.decide(event, now)
        except LocalProtocolError:
            raise
        except Exception as error:  # noqa: BLE001  # any error of a machine is a finding
            world.machine_failed(self.name, error)
            self.die(world.CRASH_RESTART_MS)
            return
        machine.install(effects.session)
        before, self._shape = self._shape, self._seen()
        changed = before != self._shape
        if world.checking:
            world.check(Told(self, event, session, effects, now))
        if world.tracing:
            world.trace.member(world.engine.now, self.name, machine, event, effects)
        self._do(effects, before[1], changed)

    def _do(self, effects: Effects[object], before: int, changed: bool) -> None:
        """Carry out the machine's effects, after observers and checkers have run."""
        world, machine = self.world, self.machine
        if world.checking and (changed or effects.observed or effects.sends):
            self._check_move(effects, before, changed)
        if effects.observed:
            world.observe(effects.observed)
        if not self._asking_names and machine.unnamed:
            self._asking_names = True
            world.engine.after(_NAMES_MS, self, self._name_topics)
        if changed and self._counts is None and machine.group_topics and not effects.jobs:
            self._watch_topics()
        if self.crash_at and (effects.sends or effects.callbacks or effects.jobs):
            self._die_in_the_middle(effects.sends)
            return
        if effects.find_coordinator:
            self._look_up()
        for send in effects.sends:
            self._send(send)
        for job in effects.jobs:
            if isinstance(job, SubscriptionJob):
                world.engine.after(_ASKING_MS, self, self._ask, job)
            else:
                world.engine.after(world.job_ms(self), self, self._assign, job)
        if effects.callbacks or effects.raised or changed:
            self.application.news(effects.callbacks, effects.raised)
        self._rearm()

    def _seen(self) -> tuple[Enum, int, frozenset[TopicPartition]]:
        """Return the visible state of the member."""
        machine = self.machine
        return machine.state, machine.generation_id, machine.assigned

    def _check_move(self, effects: Effects[object], before: int, changed: bool) -> None:
        """Run the checkers if the member has changed or sends more than a heartbeat."""
        speaks = effects.sends and not _is_sign_of_life(effects.sends[0].request)
        if changed or effects.observed or speaks:
            sends = tuple(send.request for send in effects.sends)
            self._note_membership(before, sends)
            self.world.check(Moved(self, sends, effects.observed))

    def _note_membership(self, before: int, sends: tuple[Message, ...]) -> None:
        """Record when the member lost its membership, until it requests a new one."""
        lost_at, key = self.world.ledger.lost_at, (self.name, self.life)
        if any(isinstance(each, _JOINS) for each in sends) or not self.application.wants:
            lost_at.pop(key, None)
        elif before >= 0 and self.machine.generation_id < 0:
            lost_at[key] = self.world.engine.now

    def ask(self, event: MemberEvent) -> bool:
        """Like `tell`, for a call that the machine may refuse; return whether it was accepted."""
        try:
            self._tell(event)
        except LocalProtocolError:
            self.world.note("call refused")
            self._refused(event)
            return False
        return True

    def _refused(self, event: MemberEvent) -> None:
        if self.world.checking:
            self.world.check(Refused(self, event))

    def _die_in_the_middle(self, sends: tuple[Send, ...]) -> None:
        self.world.note(f"member died {self.crash_at}")
        if self.crash_at == "after sends":
            for send in sends:
                self._send(send)
        self.die(self.world.CRASH_RESTART_MS)

    @property
    def owes_a_round(self) -> bool:
        """Return whether it is a static member during a cooperative rebalance (KIP-429)."""
        cooperative = self.protocol.is_classic and not self.is_eager
        return bool(self.plan.instance) and cooperative and self.machine.state.name in _BETWEEN

    # ------------------------------------------------------------------------------- requests

    def _send(self, send: Send) -> None:
        waits = isinstance(send.request, _PARKED)
        done = partial(self._answered, send.token)
        timeout = send.timeout_ms or REQUEST_TIMEOUT_MS
        self.request("join" if waits else "group", send.request, done, timeout)
        if self.on_beat is not None and isinstance(send.request, _BEATS):
            self.world.engine.after(0, self, self.on_beat)
            self.on_beat = None
        if self.breaks_computing and isinstance(send.request, _COMPUTES):
            self.breaks_computing = False
            self.world.engine.after(0, self, self.reset, True)

    def _answered(self, token: int, response: Message | None) -> None:
        if response is None:
            self.tell(RequestFailed(token, "no answer"))
        else:
            self.tell(ResponseArrived(token, response))

    def request(
        self, purpose: str, request: Message, done: Done, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> None:
        """Send a request to the coordinator.

        Args:
            purpose: Which connection: "join" for requests that are parked, or "group".
            request: The request.
            done: Called with the answer, or None without one.
            timeout_ms: How long to wait, in milliseconds of true time.
        """
        world = self.world
        if self._node is None:
            world.engine.after(1, self, done, None)
            return
        connection = self._connections.get(purpose)
        if connection is None or not connection.is_open or connection.node is not self._node:
            self._opened += 1
            name = f"{self.name}#{self.life}/{purpose}/{self._opened}"
            connection = world.network.connect(self, self._node, name)
            self._connections[purpose] = connection
        self._sent += 1
        version = world.version_of(type(request))
        pending = Pending(world.engine.now + timeout_ms, done, request, version)
        world.network.send(connection, self._sent, pending)
        if world.repeat_next:
            world.repeat(connection, pending)

    def connection_lost(self, node: BaseNode) -> None:
        """Handle the death of the node at the other end."""
        for connection in list(self._connections.values()):
            if connection.node is node:
                connection.lingers = False
                self.world.engine.after(1, self, self.world.network.close, connection)

    def reset(self, lingers: bool) -> None:
        """Break all its connections.

        Args:
            lingers: Whether requests in flight still arrive.
        """
        for connection in list(self._connections.values()):
            connection.lingers = lingers
            self.world.network.close(connection)

    def fall_silent(self) -> None:
        """Break its connections without either side noticing (half-open connections)."""
        for connection in self._connections.values():
            connection.silent = True

    def mend(self) -> None:
        """Detect that connections are dead."""
        for connection in list(self._connections.values()):
            if connection.silent:
                self.world.network.close(connection)

    # ------------------------------------------------------------------------------- look-ups

    def _look_up(self) -> None:
        self.world.engine.after(self.world.lookup_ms(self), self, self._found)

    def _found(self) -> None:
        world, now = self.world, self.world.engine.now
        blocked = max(self.up_blocked_until, self.down_blocked_until)
        if blocked > now:
            at = min(blocked, now + REQUEST_TIMEOUT_MS)
            world.engine.at(at, self, self._found_nobody, None)
            return
        leader = world.coordinator.leader
        if leader is None or world.lookup_error is not None:
            self._found_nobody(world.lookup_error or ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        first, second = world.coordinator.nodes
        other = second if leader is first else first
        if self.looks_at_old_leader and other.alive:
            leader = other
        self._node = leader
        self.tell(CoordinatorKnown())

    def _found_nobody(self, code: int | None) -> None:
        self.tell(LookupFailed(code))

    # ------------------------------------------------------------------------------- leading

    def _ask(self, job: SubscriptionJob) -> None:
        """Ask the assignors for their user data before the member joins."""
        try:
            said = leader.subscription_user_data(job, self.machine.assignors)
        except KohortError as error:
            self.tell(JobDone(job.token, None, str(error)))
        else:
            self.tell(JobDone(job.token, said))

    def _assign(self, job: AssignmentJob) -> None:
        if self.protocol.has_epochs:
            self._assign_by_epoch(job)
            return
        topics = leader.topics(job)
        self._counts = {name: n for name, n in sorted(self.metadata.items()) if name in topics}
        try:
            if self.world.assignor_fails(self):
                raise KohortError("the assignor raised")  # as an assignor would
            assignments = leader.compute(job, self.machine.assignors, ClusterView(self._counts))
        except Exception as error:  # noqa: BLE001  # an assignor may raise anything
            self.tell(JobDone(job.token, None, str(error)))
        else:
            self.tell(JobDone(job.token, assignments))

    def tell_assignor(self, callback: Callback) -> None:
        """Pass the assignment to the assignor before it is reported to the application (L5)."""
        try:
            self.machine.tell_assignor(callback)
        except Exception:  # noqa: BLE001  # the poll raises it, and nothing else changes
            self.world.note("assignor raised")

    def _assign_by_epoch(self, job: AssignmentJob) -> None:
        """Compute the assignment that the coordinator requested (KIP-848)."""
        world = self.world
        try:
            if world.assignor_fails(self):
                raise KohortError("the assignor raised")  # as an assignor would
            view = ClusterView(job.partitions or {})
            assignments = client_assignors.compute(job, self.machine.assignors, view)
        except Exception as error:  # noqa: BLE001  # an assignor may raise anything
            self.tell(JobDone(job.token, None, str(error)))
            return
        bug = world.garbage.pop(self.name, "")
        if bug:
            world.note("assignor gave garbage")
            assignments = spoiled(assignments, bug)
        self.tell(JobDone(job.token, assignments))

    def _name_topics(self) -> None:
        """Look up names of topics that the member knows only by id (KIP-848)."""
        self._asking_names = False
        unnamed = self.machine.unnamed
        if not unnamed:
            return
        present = {topic.topic_id: name for name, topic in self.world.topics.present.items()}
        names = {each: present[each] for each in sorted(unnamed) if each in present}
        if names:
            self.tell(TopicsNamed(names))
        else:
            self._asking_names = True
            self.world.engine.after(_RETRY_MS, self, self._name_topics)

    def _watch_topics(self) -> None:
        """Lead without computing the assignment (KIP-814): treat the present topics as known."""
        watched = self.machine.group_topics
        self._counts = {name: n for name, n in sorted(self.metadata.items()) if name in watched}
        self.world.leads_unseen(watched)

    def learn_topics(self, counts: dict[str, int]) -> None:
        """Refresh the process's metadata."""
        self.metadata = counts
        watched = self.machine.group_topics
        if watched and self._counts is not None:
            present = {name: n for name, n in sorted(counts.items()) if name in watched}
            if present != self._counts:
                self._counts = present
                self.ask(RejoinAsked("the partitions of a subscribed topic changed"))
        self.application.wake()

    @property
    def in_flight(self) -> int:
        """Return the number of its unanswered requests."""
        return sum(len(connection.waiting) for connection in self._connections.values())

    @property
    def held_until(self) -> int:
        """Return until when the network blocks it."""
        silent = any(each.silent and each.is_open for each in self._connections.values())
        held = self.world.engine.now if silent else 0
        return max(held, self.up_blocked_until, self.down_blocked_until)

    # ------------------------------------------------------------------------------- its end

    def die(self, restart_ms: int) -> None:
        """End the process abruptly.

        Args:
            restart_ms: After what time it restarts; 0: never.
        """
        if not self.alive:
            return
        self.alive = False
        for connection in self._connections.values():
            connection.waiting.clear()
            connection.is_open = False
        self.world.client_died(self)
        if restart_ms:
            self.world.restarting.add(self.name)
            self.world.engine.after(restart_ms, None, self.world.restart, self.name)


def _is_sign_of_life(request: Message) -> bool:
    """Return whether a request is a plain heartbeat, without partitions or subscription."""
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        says = (request.topic_partitions, request.subscribed_topic_names)
        return request.member_epoch > 0 and says == (None, None)
    return isinstance(request, (HeartbeatRequest, DraftHeartbeatRequest))


def _config(plan: MemberPlan, jitter: float) -> MemberConfig:
    return MemberConfig(
        group_id=GROUP,
        group_instance_id=plan.instance or None,
        session_timeout_ms=plan.session_timeout_ms,
        heartbeat_interval_ms=plan.heartbeat_interval_ms,
        first_heartbeat_part=FIRST_HEARTBEAT_PART,
        wall_clock_ahead_ms=0,
        max_poll_interval_ms=plan.max_poll_interval_ms,
        jitter=jitter,
    )
