"""Run a member machine of `kohort.group`: clock, requests and jobs, no logic of its own.

The machine's calls into the application wait in `callbacks` until a poll takes them. Code for only
one of the group protocols is in `classic` and `consumer`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.membership.fencing import explanation
from kohort.client.consumer.membership.log import GroupLog
from kohort.client.net.backoff import is_denied, needs_help
from kohort.client.net.cluster import Cluster, Purpose
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.transport import now_ms
from kohort.errors import (
    ErrorCode,
    KafkaError,
    KohortError,
    LocalProtocolError,
    RemoteProtocolError,
)
from kohort.group.effects import Callback, MemberJob, Send
from kohort.group.events import AssignorUnsupported, GroupEvent
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.events import (
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    GroupMembershipOperation,
    JobDone,
    LookupFailed,
    MemberEvent,
    Polled,
    RequestFailed,
    ResponseArrived,
    Subscribed,
    Tick,
    Unsubscribed,
)
from kohort.group.member.machine import MemberMachine
from kohort.group.member.session import Session
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.draft import DraftHeartbeatRequest, DraftJoinGroupRequest
from kohort.wire.messages.membership import JoinGroupRequest, SyncGroupRequest

log = logging.getLogger("kohort.client")

# A member of any group protocol.
AnyMember: TypeAlias = MemberMachine[Any, Any]


# Name of the state, in every machine, that only a new subscription leaves.
_FATAL = "FATAL"
# The minimum interval between warnings of a blocked loop.
_QUIET_MS = 10_000
# Polls per max.poll.interval.ms that are distinguished.
_MOST_POLLS = 1_000


class Membership:
    """One member of one group, on the loop.

    Args:
        member: Its machine.
        cluster: The brokers.
        coordinator: The group's coordinator.
        config: Settings; they have a group id.
        on_change: Called when there is news for the application.

    Attributes:
        coordinator_decides: Whether the coordinator alone decides when to rebalance.
        unanswered: Numbers of the requests that have not ended for the machine.
    """

    coordinator_decides = False

    def __init__(
        self,
        member: AnyMember,
        cluster: Cluster,
        coordinator: Coordinator,
        config: ConsumerConfig,
        on_change: Callable[[], None],
    ) -> None:
        self.member = member
        self.callbacks: deque[Callback] = deque()
        self.errors: deque[BaseException] = deque()
        self.unanswered: set[int] = set()
        self._cluster = cluster
        self._coordinator = coordinator
        self._on_change = on_change
        self._event_listener = config.event_listener
        self._config = config
        self._log = GroupLog(config)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._quiet_until = 0
        self._last_failure = ""
        self._polled: Session | None = None
        self._polled_until = 0
        self._raised: BaseException | None = None
        self._refused: KohortError | None = None
        self._has_looked = False
        coordinator.on_found.append(self._coordinator_found)

    # ---------------------------------------------------------------------- the application

    def subscribe(self, topics: frozenset[str], pattern: str | None = None) -> None:
        """Subscribe to topics, or to a pattern that the broker resolves; none means to leave."""
        self._refused, self._has_looked = None, False
        if topics or pattern is not None:
            self.run(Subscribed(topics, pattern))
        else:
            self.run(Unsubscribed())

    def polled(self) -> None:
        """Note that the application is alive; polls in quick succession count once."""
        now = now_ms()
        if self.member.session is not self._polled or now >= self._polled_until:
            self.run(Polled())
            self._polled = self.member.session
            self._polled_until = now + self.member.config.max_poll_interval_ms // _MOST_POLLS

    @property
    def fatal(self) -> BaseException | None:
        """Why the member cannot continue, None when it can."""
        return self._raised if self.member.state.name == _FATAL else self._refused

    def look(self) -> None:
        """Check once whether the user may use the group, while no topic matches a pattern.

        A member without topics sends no requests, so a missing permission would look like no
        topics.
        """
        if not self._has_looked:
            self._has_looked = True
            self._start(self._look())

    async def _look(self) -> None:
        pause = self._cluster.retry_backoff()
        while self._has_looked:
            try:
                await self._coordinator.locate()
            except KohortError as error:
                if is_denied(error) and self._has_looked:
                    self._refused = error
                    self._on_change()
                    return
                log.debug("coordinator of %s: %s", self._group, error)
                if needs_help(error):  # polls raise it: it affects more than the group
                    return
                await asyncio.sleep(pause.next_s())
            else:
                return

    def why_out(self, code: int = 0) -> str:
        """Return why the member dropped out of its group without leaving; empty if it did not.

        Args:
            code: The coordinator's error code for a commit, if the member has not noticed yet.
        """
        return self._log.removal_reason or (explanation("", code, self._config) if code else "")

    @property
    def asks_as(self) -> CommitIdentity | None:
        """The member id and epoch to fetch offsets with; None for none."""
        return None

    @property
    def is_session_over(self) -> bool:
        """Whether the coordinator may have removed the member; False when not known."""
        return False

    def begin_close(self, operation: GroupMembershipOperation) -> None:
        """Start leaving the group; `is_closed` tells when it is done."""
        self.run(Closing(operation))

    @property
    def is_closed(self) -> bool:
        """Whether the member has left permanently."""
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

    def run(self, event: MemberEvent, cause: Exception | None = None) -> None:
        """Pass an event to the machine and run its effects; `cause` explains its errors."""
        effects = self.member.decide(event, now_ms())
        self.member.install(effects.session)
        for fact in effects.observed:
            self._publish(fact)
        member = self.member
        identity = (member.member_id, member.generation_id) if member.session.is_member else None
        self._log.observed(effects.observed, identity, member.assigned, _answered(event))
        if effects.find_coordinator:
            self._start(self._find_coordinator())
        for send in effects.sends:
            self.unanswered.add(send.token)
            self._start(self._send(send))
        for job in effects.jobs:
            self._start(self._do(job))
        self.callbacks.extend(effects.callbacks)
        for error in effects.raised:
            error.__cause__ = cause
            self._raised = error
            self._note_error(error)
        self._set_timer()
        self._on_change()

    def _note_error(self, error: BaseException) -> None:
        """Make the next poll raise an error, once even if it repeats before then."""
        if repr(error) not in map(repr, self.errors):
            self.errors.append(error)

    def _publish(self, fact: GroupEvent) -> None:
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
            except BaseException:  # SystemExit would end the thread that everything needs
                log.exception("event_listener raised")

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # it must not lead to a silent wait
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
        """Warn when the loop was blocked for so long that heartbeats were late."""
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
            self.run(LookupFailed(error.code if is_answer else None, error.message))
        except KohortError as error:
            text = f"the coordinator of group {self._group} cannot be used: {error}; asking again"
            if isinstance(error, RemoteProtocolError):
                log.debug("%s", text)  # logged as a warning elsewhere, once and not at each attempt
            else:
                self._cluster.incidents.say(text)
            self.run(LookupFailed())
        else:
            if not self.member.session.coordinator_known:
                self.run(CoordinatorKnown(asks_members=asks))

    def _coordinator_found(self) -> None:
        """Tell the member of its coordinator: otherwise it waits, or leaves without a request."""
        if not (self.member.is_closed or self.member.session.coordinator_known):
            self.run(CoordinatorKnown())

    async def _asks_members(self) -> bool:
        """Whether the coordinator asks members for assignments; irrelevant if it cannot."""
        return True

    async def _send(self, send: Send) -> None:
        request = send.request
        assert isinstance(request, Request)
        waits = isinstance(request, (JoinGroupRequest, SyncGroupRequest, DraftJoinGroupRequest))
        sent_at = now_ms()
        try:
            response: Message = await self._coordinator.send(
                request,
                purpose=Purpose.JOIN if waits else Purpose.GROUP,
                timeout_ms=send.timeout_ms,
            )
        except KohortError as error:
            self.unanswered.discard(send.token)
            self.run(RequestFailed(send.token, str(error), _hopeless(request, error)))
        else:
            self.unanswered.discard(send.token)
            self._note_heard(response, sent_at)
            self.run(ResponseArrived(send.token, response))

    def _note_heard(self, response: Message, sent_at: int) -> None:
        """Note that the coordinator has heard from the member, at that time or later."""

    async def _do(self, job: MemberJob) -> None:
        """Run a job of the assignors in another thread, while heartbeats continue."""
        try:
            done = await self._done(job)
        except Exception as error:  # the poll raises it once the member knows
            told = str(error) if isinstance(error, KohortError) else ""
            failure = told or f"{type(error).__name__}: {error}"
            if failure != self._last_failure:  # retries may fail the same way very often
                self._last_failure = failure
                log.warning("an assignor of group %s failed", self._group, exc_info=error)
            self.run(JobDone(job.token, None, failure), error)
        else:
            self.run(JobDone(job.token, done))

    @property
    def _group(self) -> str:
        return self._coordinator.group_id

    async def _done(self, job: MemberJob) -> Mapping[str, bytes]:
        """Return the result of a job; a member without assignors never gets one."""
        raise AssertionError(f"{type(self.member).__name__} was given {type(job).__name__}")


def _answered(event: MemberEvent) -> int:
    """Return the coordinator's error code in an event; 0 for none."""
    if isinstance(event, ResponseArrived):
        code: int = getattr(event.response, "error_code", 0)
        return code
    if isinstance(event, (CommitAnswered, LookupFailed, RequestFailed)):
        return event.error_code or 0
    return 0


# Requests that not all brokers serve.
_NOT_EVERYWHERE = (ConsumerGroupHeartbeatRequest, DraftJoinGroupRequest, DraftHeartbeatRequest)


def _hopeless(request: Message, error: KohortError) -> int | None:
    """Return the code of an error that retrying cannot fix; None for others."""
    if not isinstance(request, _NOT_EVERYWHERE):
        return None
    # a pattern needs version 1: a request that an older version cannot express is not sent
    too_old = isinstance(error, LocalProtocolError)
    unsupported = isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.UNSUPPORTED_VERSION if too_old or unsupported else None
