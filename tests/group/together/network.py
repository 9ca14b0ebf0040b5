"""A coordinator and its members in one process: an ordered network, and virtual time.

Requests and responses are delivered when the test says so, one at a time, in order for each member,
as TCP guarantees. The log is a list of encoded records, so a reload decodes real bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kohort.errors import RebalanceInProgressError
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import RequestArrived, ShardEvent, Unload
from kohort.group.coordinator.events import Tick as ShardTick
from kohort.group.coordinator.shard import Shard
from kohort.group.coordinator.state import ShardSession
from kohort.group.effects import Callback, Effects, MemberJob, Send
from kohort.group.events import GroupEvent, Ownership
from kohort.group.member.classic.machine import ClassicMember
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.config import MemberConfig
from kohort.group.member.draft.machine import DraftMember
from kohort.group.member.events import (
    CallbackDone,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    MemberEvent,
    Polled,
    RequestFailed,
    ResponseArrived,
    Tick,
)
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire import group_log
from kohort.wire.codec.schema import Message
from kohort.wire.messages.offsets import OffsetCommitResponse

GROUP = "delays"
WALL = 1_357_000_000_000
_BY_NAME = 9  # later versions of OffsetCommit have topic ids, which a shard does not know

M = TypeVar("M", ClassicMember, DraftMember)


@dataclass
class Connected(Generic[M]):
    """A member, its connection and its application."""

    name: str
    member: M
    requests: deque[Send] = field(default_factory=deque)
    answers: deque[tuple[int, Message]] = field(default_factory=deque)
    callbacks: deque[Callback] = field(default_factory=deque)
    jobs: deque[MemberJob] = field(default_factory=deque)
    commits: deque[CommitIdentity] = field(default_factory=deque)
    verdicts: list[CommitVerdict] = field(default_factory=list)
    looking_up: bool = False
    deferring: bool = False
    reachable: bool = True
    # The partitions that the application believes to own, according to its callbacks.
    believes: set[TopicPartition] = field(default_factory=set)
    words: list[tuple[Ownership, frozenset[TopicPartition]]] = field(default_factory=list)
    raised: list[Exception] = field(default_factory=list)


class Network(Generic[M]):
    """One shard, and any number of applications."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self.config = config
        self.now = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.observed: list[GroupEvent] = []
        self.applications: dict[str, Connected[M]] = {}
        self.topics = {"flights": 8}
        self._tokens: dict[int, tuple[Connected[M] | None, int]] = {}
        self._token = 0
        self._next_commit = -1
        self.shard = Shard(self.config)
        self.reload()

    # ----------------------------------------------------------------------------- coordinator

    def reload(self) -> None:
        """Stop the shard, and load a new one from the log."""
        self.coordinate(Unload())
        before = self.shard.log
        self.shard = Shard(self.config)
        self.prepare_shard()
        self.shard.load_started()
        for key, value in self.log:
            record = group_log.decode_record(key, value)
            assert record is not None
            self.shard.apply(record)
        assert self.shard.log == before
        self.observed += self.shard.load_finished(self.now)

    def prepare_shard(self) -> None:
        """Prepare a new shard before it reads its log."""

    def coordinate(self, event: ShardEvent) -> Effects[ShardSession]:
        effects = self.shard.decide(event, self.now)
        for record in effects.records:
            self.log.append(group_log.encode_record(record.key, record.value))
            self.shard.apply(record)
        self.shard.install(effects.session)
        self.observed += effects.observed
        for reply in effects.replies:
            application, token = self._tokens.pop(reply.token)
            if application is not None:
                application.answers.append((token, reply.response))
        return effects

    # ------------------------------------------------------------------------------ members

    @staticmethod
    def settings(instance: str | None = None) -> MemberConfig:
        return MemberConfig(
            group_id=GROUP,
            group_instance_id=instance,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=3_000,
            max_poll_interval_ms=60_000,
        )

    def add(self, name: str, member: M) -> Connected[M]:
        self.applications[name] = Connected(name, member)
        return self.applications[name]

    def tell(self, application: Connected[M], event: MemberEvent) -> None:
        effects = application.member.decide(event, self.now)
        application.member.install(effects.session)
        application.requests += effects.sends
        application.callbacks += effects.callbacks
        application.jobs += effects.jobs
        application.raised += effects.raised
        application.looking_up |= effects.find_coordinator
        self.observed += effects.observed

    # --------------------------------------------------------------------------- single steps

    def deliver_request(self, application: Connected[M]) -> None:
        send = application.requests.popleft()
        self._token += 1
        self._tokens[self._token] = (application, send.token)
        self.coordinate(
            RequestArrived(
                token=self._token,
                request=send.request,
                version=min(type(send.request).max_version, _BY_NAME),
                client_id=application.name,
                client_host="/127.0.0.1",
                unique_id=str(self._token),
                wall_ms=WALL + self.now,
            )
        )

    def deliver_answer(self, application: Connected[M]) -> None:
        token, response = application.answers.popleft()
        if isinstance(response, OffsetCommitResponse):
            self._note_commit(application, response)
        else:
            self.tell(application, ResponseArrived(token, response))

    def answer_lookup(self, application: Connected[M]) -> None:
        application.looking_up = False
        self.tell(application, CoordinatorKnown())

    def run_callback(self, application: Connected[M]) -> None:
        """Check that no partition is assigned or revoked twice (S13)."""
        callback = application.callbacks.popleft()
        application.words.append((callback.change, callback.partitions))
        if callback.change is Ownership.ASSIGNED:
            application.member.tell_assignor(callback)
            assert not application.believes & callback.partitions
            application.believes |= callback.partitions
        else:
            assert application.believes >= callback.partitions
            application.believes -= callback.partitions
        self.tell(application, CallbackDone(callback.token))

    def run_job(self, application: Connected[M]) -> None:
        """Run a leader's job."""
        raise AssertionError(f"{application.name} does not lead")

    def run_own_job(self) -> bool:
        """Run the coordinator's job; return False if there is none."""
        return False

    def commit(self, application: Connected[M]) -> None:
        """Commit offset 7 of all partitions that the application believes to own."""
        offsets = dict.fromkeys(application.believes, OffsetAndMetadata(7))
        try:
            request = application.member.commit_request(offsets)
        except RebalanceInProgressError:  # L11
            return
        application.commits.append(application.member.identity)
        application.requests.append(Send(self._next_commit, request))
        self._next_commit -= 1

    def _note_commit(self, application: Connected[M], response: OffsetCommitResponse) -> None:
        """Check that only current members commit, and only partitions they own (S10)."""
        sent = application.commits.popleft()
        codes = [p.error_code for topic in response.topics for p in topic.partitions]
        worst = max(codes, default=0)
        verdict = application.member.commit_verdict(sent, worst)
        assert (verdict is CommitVerdict.DONE) == (worst == 0)
        application.verdicts.append(verdict)
        self.tell(application, CommitAnswered(sent, worst))

    def drop_connection(self, application: Connected[M]) -> None:
        """Lose pending messages in both directions; the coordinator does not notice."""
        lost = [send.token for send in application.requests]
        lost += [token for owner, token in self._tokens.values() if owner is application]
        for key, (owner, token) in list(self._tokens.items()):
            self._tokens[key] = (None if owner is application else owner, token)
        application.requests.clear()
        application.answers.clear()
        application.commits.clear()
        self.tell(application, CoordinatorLost("connection closed"))
        for token in lost:
            self.tell(application, RequestFailed(token, "connection closed"))

    def kill(self, name: str) -> None:
        del self.applications[name]

    # ------------------------------------------------------------------------------- running

    def work(self, application: Connected[M]) -> bool:
        """Take the first possible step of an application; return False if there is none."""
        if application.looking_up and application.reachable:
            self.answer_lookup(application)
        elif application.requests and application.reachable:
            self.deliver_request(application)
        elif application.answers:
            self.deliver_answer(application)
        elif application.jobs:
            self.run_job(application)
        elif application.callbacks and not application.deferring:
            self.run_callback(application)
        else:
            return False
        return True

    def settle(self) -> None:
        """Deliver all pending messages, without letting time pass."""
        for _ in range(10_000):
            worked = sum(self.work(entry) for entry in list(self.applications.values()))
            if not self.run_own_job() and not worked and not self.expire():
                return
        raise AssertionError("the group does not come to rest")

    def expire(self) -> bool:
        due = self.shard.next_deadline()
        expired = due is not None and due <= self.now
        if expired:
            self.coordinate(ShardTick(WALL + self.now))
        for application in list(self.applications.values()):
            due = application.member.next_deadline()
            if due is not None and due <= self.now:
                self.tell(application, Tick())
                expired = True
        return expired

    def poll(self) -> None:
        """Have all applications poll."""
        for application in list(self.applications.values()):
            if not application.member.is_closed:
                self.tell(application, Polled())

    def advance(self, milliseconds: int, *, poll: bool = True) -> None:
        """Let time pass in steps of a quarter of a second; all messages are delivered at once."""
        end = self.now + milliseconds
        while self.now < end:
            self.now = min(self.now + 250, end)
            if poll:
                self.poll()
            self.settle()

    # ----------------------------------------------------------------------------- questions

    def owners(self) -> dict[TopicPartition, list[str]]:
        """Return the believed owners of each partition, among the current members."""
        owners: dict[TopicPartition, list[str]] = {}
        for name, application in sorted(self.applications.items()):
            for partition in sorted(application.member.assigned):
                owners.setdefault(partition, []).append(name)
        return owners
