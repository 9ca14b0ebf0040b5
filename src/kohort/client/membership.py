"""Runs the member machine of `kohort.group`: clock, requests and jobs, no logic of its own.

The machine's calls into the application wait in `callbacks` until a poll takes them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Mapping

from kohort.client.backoff import JITTER, Backoff, Deadline
from kohort.client.cluster import Cluster, Purpose
from kohort.client.config import ConsumerConfig
from kohort.client.coordinator import Coordinator
from kohort.client.metadata import ClusterMetadata, from_response
from kohort.client.transport import now_ms
from kohort.errors import ErrorCode, KafkaError, KohortError, LocalProtocolError
from kohort.group.assignors import ClusterView, RackedClusterView
from kohort.group.effects import AssignmentJob, Callback, Effects, Send
from kohort.group.events import AssignorUnsupported, GroupEvent
from kohort.group.member import leader
from kohort.group.member.classic.machine import ClassicMember
from kohort.group.member.classic.machine import MemberSession as ClassicSession
from kohort.group.member.config import FIRST_HEARTBEAT_PART, MemberConfig
from kohort.group.member.consumer import client_assignors
from kohort.group.member.consumer.machine import ConsumerMember
from kohort.group.member.consumer.machine import MemberSession as ConsumerSession
from kohort.group.member.draft.machine import DraftMember, DraftMemberSession
from kohort.group.member.events import (
    Closing,
    CoordinatorKnown,
    GroupMembershipOperation,
    JobDone,
    LookupFailed,
    MemberEvent,
    Polled,
    RejoinAsked,
    RequestFailed,
    ResponseArrived,
    Subscribed,
    Tick,
    TopicsNamed,
    Unsubscribed,
)
from kohort.wire.messages.client_assignors import ConsumerGroupPrepareAssignmentRequest
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.membership import JoinGroupRequest, SyncGroupRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.schema import Message, Request

log = logging.getLogger("kohort.client")


# How often a blocked loop is complained about.
_QUIET_MS = 10_000
# A heartbeat is sent so much later than asked. The members of a classic group get their assignments
# at one moment and beat in step from then on; when one is killed, its session ends at the very
# moment at which all others beat. Who is early hears of it one interval later, and all wait for it.
_LATE_MS = 10


class Membership:
    """One member of one group, on the loop.

    Args:
        cluster: The brokers.
        coordinator: The group's coordinator.
        config: Settings; they have a group id.
        on_change: Called when there is something for the application.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        config: ConsumerConfig,
        on_change: Callable[[], None],
    ) -> None:
        self.callbacks: deque[Callback] = deque()
        self.errors: deque[BaseException] = deque()
        self._cluster = cluster
        self._coordinator = coordinator
        self._on_change = on_change
        self._event_listener = config.event_listener
        self.member = _new_member(config)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._counts: Mapping[str, int] | None = None
        self._quiet_until = 0
        self._asking_names = False
        coordinator.on_found.append(self._coordinator_found)
        cluster.on_metadata.append(self._check_partitions)
        cluster.on_metadata.append(self._learn_names)

    # ---------------------------------------------------------------------- the application

    def subscribe(self, topics: frozenset[str], pattern: str | None = None) -> None:
        """Want these topics, or those of a pattern for the broker; none means to leave the group.

        A member of the consumer protocol that has failed for good is replaced by a new one, so
        that an application can mend what it subscribes to.
        """
        if not topics and pattern is None:
            self.run(Unsubscribed())
            return
        failed = self.member
        if isinstance(failed, ConsumerMember) and failed.is_failed:
            first_token = failed.session.next_token
            assignors = tuple(failed.assignors.values())
            self.member = ConsumerMember(failed.config, _new_member_id(), first_token, assignors)
        self.run(Subscribed(topics, pattern))

    def polled(self) -> None:
        """Note that the application is alive."""
        self.run(Polled())

    def begin_close(self, operation: GroupMembershipOperation) -> None:
        """Begin to leave the group; `is_closed` says when that is done."""
        self.run(Closing(operation))

    @property
    def is_closed(self) -> bool:
        """Whether the member has left for good."""
        return self.member.is_closed

    async def stop(self) -> None:
        """Stop at once, without leaving the group."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -------------------------------------------------------------------------- the machine

    def run(self, event: MemberEvent) -> None:
        """Tell the machine something and do what it wants done."""
        watched = self.member.group_topics
        effects = _advance(self.member, event)
        if self.member.group_topics - watched:
            self._start(self._learn(self.member.group_topics))
        for fact in effects.observed:
            self._publish(fact)
        if effects.find_coordinator:
            self._start(self._find_coordinator())
        for send in effects.sends:
            self._start(self._send(send))
        for job in effects.jobs:
            self._start(self._assign(job))
        self.callbacks.extend(effects.callbacks)
        self.errors.extend(effects.raised)
        self._set_timer()
        self._on_change()
        self._learn_names()

    def _publish(self, fact: GroupEvent) -> None:
        log.debug("%s", fact)
        if isinstance(fact, AssignorUnsupported):
            log.warning(
                "group %s: the broker asks no member for an assignment, so its own assignor is used"
                " and not %s",
                fact.group,
                ", ".join(fact.assignors),
            )
        self._coordinator.metrics.observed(fact, now_ms())
        if self._event_listener is not None:
            try:
                self._event_listener(fact)
            except Exception:
                log.exception("event_listener raised")

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # it must not end in a silent wait
            self.errors.append(error)
            self._on_change()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.member.next_deadline()
        if due is not None and not self.is_closed:
            self._timer = asyncio.get_running_loop().call_at(due / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._check_loop()
        while (due := self.member.next_deadline()) is not None and due <= now_ms():
            self.run(Tick())
        self._set_timer()

    def _check_loop(self) -> None:
        """Warn when the loop was busy with something else for so long that the group may suffer."""
        due = self.member.next_deadline()
        late = 0 if due is None else now_ms() - due
        if late > self.member.heartbeat_interval_ms and now_ms() > self._quiet_until:
            self._quiet_until = now_ms() + _QUIET_MS
            log.warning(
                "the event loop was blocked for %d ms: heartbeats of group %s were late",
                late,
                self._coordinator.group_id,
            )

    async def _find_coordinator(self) -> None:
        self._coordinator.forget()
        try:
            await self._coordinator.find()
            asks = await self._asks_members()
        except KafkaError as error:
            log.debug("coordinator of %s: %s", self._coordinator.group_id, error)
            is_answer = error.code != ErrorCode.NETWORK_EXCEPTION
            self.run(LookupFailed(error.code if is_answer else None))
        except KohortError as error:
            log.warning("coordinator of %s: %s", self._coordinator.group_id, error)
            self.run(LookupFailed())
        else:
            if not self.member.session.coordinator_known:
                self.run(CoordinatorKnown(asks_members=asks))

    def _coordinator_found(self) -> None:
        """Let the member know what its client knows: else it waits, or leaves without a word.

        Whether a new coordinator asks members for assignments has to be found out first.
        """
        member = self.member
        has_assignors = isinstance(member, ConsumerMember) and member.assignors
        if not (member.is_closed or member.session.coordinator_known or has_assignors):
            self.run(CoordinatorKnown())

    async def _asks_members(self) -> bool:
        """Whether the coordinator asks members for assignments; no matter where they cannot."""
        member = self.member
        if not isinstance(member, ConsumerMember) or not member.assignors:
            return True
        return await self._coordinator.serves(ConsumerGroupPrepareAssignmentRequest)

    async def _send(self, send: Send) -> None:
        request = send.request
        assert isinstance(request, Request)
        waits = isinstance(request, (JoinGroupRequest, SyncGroupRequest, DraftJoinGroupRequest))
        try:
            response: Message = await self._coordinator.send(
                request,
                purpose=Purpose.JOIN if waits else Purpose.GROUP,
                timeout_ms=send.timeout_ms,
            )
        except KohortError as error:
            self.run(RequestFailed(send.token, str(error), _hopeless(request, error)))
        else:
            self.run(ResponseArrived(send.token, response))

    # ---------------------------------------------------------------------- names of topics

    def _learn_names(self) -> None:
        """Tell the member the names of topics that it knows by id only (KIP-848)."""
        member = self.member
        if not isinstance(member, ConsumerMember) or not member.unnamed:
            return
        names = self._cluster.metadata.topic_names
        known = {each: names[each] for each in member.unnamed if each in names}
        if known:
            self.run(TopicsNamed(known))
        elif not self._asking_names:
            self._asking_names = True
            self._start(self._ask_names(member))

    async def _ask_names(self, member: ConsumerMember) -> None:
        config = self._cluster.config
        pause = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        try:
            while member.unnamed and not member.is_closed:
                await self._ask_names_once(member)
                await asyncio.sleep(pause.next_s())
        finally:
            self._asking_names = False

    async def _ask_names_once(self, member: ConsumerMember) -> None:
        """Ask for the topics, and keep their metadata fresh from then on: they will be read."""
        topics = tuple(
            MetadataRequestTopic(topic_id=each, name=None) for each in sorted(member.unnamed)
        )
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        try:
            found = from_response(await self._cluster.send_any(request)).topic_names
            deadline = Deadline(self._cluster.config.request_timeout_ms)
            await self._cluster.ensure_topics(found.values(), deadline)
        except KohortError as error:
            log.debug("names of topics: %s", error)
        else:
            if found:
                self.run(TopicsNamed(found))

    # --------------------------------------------------------------------------- the leader

    async def _assign(self, job: AssignmentJob) -> None:
        """Compute the group's assignment in another thread: heartbeats go on meanwhile."""
        try:
            assignments = await self._computed(job)
        except Exception as error:
            log.exception("assignor %s failed", job.assignor)
            self.run(JobDone(job.token, None, f"{type(error).__name__}: {error}"))
        else:
            self.run(JobDone(job.token, assignments))

    async def _computed(self, job: AssignmentJob) -> Mapping[str, bytes]:
        """Return each member's assignment; under KIP-848 the coordinator said all there is."""
        member = self.member
        if isinstance(member, ConsumerMember):
            view = ClusterView(job.partitions or {})
            return await asyncio.to_thread(client_assignors.compute, job, member.assignors, view)
        assert isinstance(member, ClassicMember)
        topics = leader.topics(job)
        deadline = Deadline(self._cluster.config.default_api_timeout_ms)
        await self._cluster.ensure_topics(topics, deadline)
        view = cluster_view(self._cluster.metadata, topics)
        if leader.unknown_claims(job, view):
            await self._cluster.refresh(deadline)
            view = cluster_view(self._cluster.metadata, topics)
        self._counts = dict(view.partitions)
        return await asyncio.to_thread(leader.compute, job, member.assignors, view)

    async def _learn(self, topics: frozenset[str]) -> None:
        """Watch topics, also as a leader that has nothing to assign (KIP-814)."""
        try:
            await self._cluster.ensure_topics(topics, Deadline(None))
        except KohortError as error:
            log.warning("topics of group %s: %s", self._coordinator.group_id, error)
        self._check_partitions()

    def _check_partitions(self) -> None:
        """As leader, rebalance when topics of the group got partitions, came or went."""
        member = self.member
        topics = member.group_topics
        if not topics or not isinstance(member, ClassicMember):
            self._counts = None
        elif topics <= self._cluster.metadata.topics.keys():
            present = _count(self._cluster.metadata, topics)
            if self._counts is not None and present != self._counts:
                self._counts = present
                self.run(RejoinAsked("the partitions of a subscribed topic changed"))
            elif self._counts is None and member.session.job is None:
                self._counts = present


def cluster_view(metadata: ClusterMetadata, topics: frozenset[str]) -> ClusterView:
    """Return what an assignor sees: sizes of topics, and racks if brokers say theirs (KIP-881)."""
    counts = _count(metadata, topics)
    rack_of = {node.node_id: node.rack for node in metadata.nodes.values() if node.rack}
    if not rack_of:
        return ClusterView(counts)
    racks = {
        name: [
            frozenset(rack_of[node] for node in partition.replicas if node in rack_of)
            for _, partition in sorted(metadata.topics[name].partitions.items())
        ]
        for name in counts
    }
    return RackedClusterView(counts, racks)


def _count(metadata: ClusterMetadata, topics: frozenset[str]) -> dict[str, int]:
    return {
        name: len(topic.partitions)
        for name, topic in metadata.topics.items()
        if name in topics and topic.partitions
    }


def _new_member(config: ConsumerConfig) -> ClassicMember | ConsumerMember | DraftMember:
    if config.group_protocol == "consumer":
        assignors = config.local_assignors()
        return ConsumerMember(_member_config(config), _new_member_id(), assignors=assignors)
    if config.group_protocol == "draft":
        return DraftMember(_member_config(config), socket.gethostname())
    return ClassicMember(_member_config(config), config.assignors())


def _new_member_id() -> str:
    """Return an id that no member had before (KIP-1082)."""
    return str(uuid.uuid4())


def _advance(
    member: ClassicMember | ConsumerMember | DraftMember, event: MemberEvent
) -> Effects[ClassicSession] | Effects[ConsumerSession] | Effects[DraftMemberSession]:
    if isinstance(member, ConsumerMember):
        decided = member.decide(event, now_ms())
        member.install(decided.session)
        return decided
    if isinstance(member, DraftMember):
        changed = member.decide(event, now_ms())
        member.install(changed.session)
        return changed
    effects = member.decide(event, now_ms())
    member.install(effects.session)
    return effects


# Brokers need not serve these.
_NOT_EVERYWHERE = (ConsumerGroupHeartbeatRequest, DraftJoinGroupRequest, DraftHeartbeatRequest)


def _hopeless(request: Message, error: KohortError) -> int | None:
    """Return the code of an error that no later attempt can avoid."""
    if not isinstance(request, _NOT_EVERYWHERE):
        return None
    # a pattern needs version 1: what the broker's version cannot say is refused before it is sent
    too_old = isinstance(error, LocalProtocolError)
    unsupported = isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.UNSUPPORTED_VERSION if too_old or unsupported else None


def _member_config(config: ConsumerConfig) -> MemberConfig:
    assert config.group_id is not None
    return MemberConfig(
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms + _LATE_MS,
        first_heartbeat_part=FIRST_HEARTBEAT_PART,
        wall_clock_ahead_ms=_wall_clock_ahead_ms(),
        max_poll_interval_ms=config.max_poll_interval_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        jitter=random.uniform(1 - JITTER, 1 + JITTER),
        rack_id=config.client_rack,
        server_assignor=config.group_remote_assignor,
    )


def _wall_clock_ahead_ms() -> int | None:
    return int(time.time() * 1000) - now_ms()
