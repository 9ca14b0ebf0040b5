"""Runs the member machine of `kohort.group`: clock, requests and jobs, no logic of its own.

The machine's calls into the application wait in `callbacks` until a poll takes them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping

from kohort.client.backoff import JITTER, Deadline
from kohort.client.cluster import Cluster, Purpose
from kohort.client.config import ConsumerConfig
from kohort.client.coordinator import Coordinator
from kohort.client.transport import now_ms
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.group.assignors import ClusterView
from kohort.group.effects import AssignmentJob, Callback, Send
from kohort.group.events import GroupEvent
from kohort.group.member import leader
from kohort.group.member.classic.machine import ClassicMember, MemberState
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import (
    Closing,
    CoordinatorKnown,
    JobDone,
    LookupFailed,
    MemberEvent,
    Polled,
    RejoinAsked,
    RequestFailed,
    ResponseArrived,
    Subscribed,
    Tick,
    Unsubscribed,
)
from kohort.wire.messages.membership import JoinGroupRequest, SyncGroupRequest
from kohort.wire.schema import Message, Request

log = logging.getLogger("kohort.client")


# How often a blocked loop is complained about.
_QUIET_MS = 10_000


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
        self.member = ClassicMember(_member_config(config), config.assignors())
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._counts: Mapping[str, int] | None = None
        self._quiet_until = 0
        cluster.on_metadata.append(self._check_partitions)

    # ---------------------------------------------------------------------- the application

    def subscribe(self, topics: frozenset[str]) -> None:
        """Want these topics; none means to leave the group."""
        self.run(Subscribed(topics) if topics else Unsubscribed())

    def polled(self) -> None:
        """Note that the application is alive."""
        self.run(Polled())

    def begin_close(self) -> None:
        """Begin to leave the group; `is_closed` says when that is done."""
        self.run(Closing())

    @property
    def is_closed(self) -> bool:
        """Whether the member has left for good."""
        return self.member.state is MemberState.CLOSED

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
        effects = self.member.decide(event, now_ms())
        self.member.install(effects.session)
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

    def _publish(self, fact: GroupEvent) -> None:
        log.debug("%s", fact)
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
        if late > self.member.config.heartbeat_interval_ms and now_ms() > self._quiet_until:
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
        except KafkaError as error:
            log.debug("coordinator of %s: %s", self._coordinator.group_id, error)
            is_answer = error.code != ErrorCode.NETWORK_EXCEPTION
            self.run(LookupFailed(error.code if is_answer else None))
        except KohortError as error:
            log.warning("coordinator of %s: %s", self._coordinator.group_id, error)
            self.run(LookupFailed())
        else:
            self.run(CoordinatorKnown())

    async def _send(self, send: Send) -> None:
        request = send.request
        assert isinstance(request, Request)
        waits = isinstance(request, (JoinGroupRequest, SyncGroupRequest))
        try:
            response: Message = await self._coordinator.send(
                request,
                purpose=Purpose.JOIN if waits else Purpose.GROUP,
                timeout_ms=send.timeout_ms,
            )
        except KohortError as error:
            self.run(RequestFailed(send.token, str(error)))
        else:
            self.run(ResponseArrived(send.token, response))

    # --------------------------------------------------------------------------- the leader

    async def _assign(self, job: AssignmentJob) -> None:
        """Compute the group's assignment in another thread: heartbeats go on meanwhile."""
        topics = leader.topics(job)
        try:
            deadline = Deadline(self._cluster.config.default_api_timeout_ms)
            metadata = await self._cluster.ensure_topics(topics, deadline)
            counts = {
                name: len(topic.partitions)
                for name, topic in metadata.topics.items()
                if name in topics and topic.partitions
            }
            self._counts = counts
            view = ClusterView(counts)
            assignments = await asyncio.to_thread(leader.compute, job, self.member.assignors, view)
        except Exception as error:
            log.exception("assignor %s failed", job.assignor)
            self.run(JobDone(job.token, None, f"{type(error).__name__}: {error}"))
        else:
            self.run(JobDone(job.token, assignments))

    def _check_partitions(self) -> None:
        """As leader, rebalance when topics of the group got partitions, came or went."""
        topics = self.member.group_topics
        if not topics or self._counts is None:
            return
        present = {
            name: len(topic.partitions)
            for name, topic in self._cluster.metadata.topics.items()
            if name in topics and topic.partitions
        }
        if topics <= self._cluster.metadata.topics.keys() and present != self._counts:
            self._counts = present
            self.run(RejoinAsked("the partitions of a subscribed topic changed"))


def _member_config(config: ConsumerConfig) -> MemberConfig:
    assert config.group_id is not None
    return MemberConfig(
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        jitter=random.uniform(1 - JITTER, 1 + JITTER),
        rack_id=config.client_rack,
    )
