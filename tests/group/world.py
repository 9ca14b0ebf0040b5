"""A coordinator and its members in one process: a network that keeps the order, and virtual time.

Requests and answers travel when the test says so, one at a time, in order for each member; that is
all a TCP connection promises. The log is a list of encoded records, so a reload reads real bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kohort.errors import LocalProtocolError, RebalanceInProgressError
from kohort.group.assignors import Assignor, ClusterView, RangeAssignor
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import RequestArrived, ShardEvent, Unload
from kohort.group.coordinator.events import Tick as ShardTick
from kohort.group.coordinator.shard import Shard, ShardSession
from kohort.group.effects import AssignmentJob, Callback, Effects, Send
from kohort.group.events import GroupEvent, Ownership
from kohort.group.member import leader
from kohort.group.member.classic.machine import ClassicMember, MemberSession, MemberState
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import (
    CallbackDone,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    JobDone,
    MemberEvent,
    Polled,
    RequestFailed,
    ResponseArrived,
    Tick,
)
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire import group_log
from kohort.wire.messages.offsets import OffsetCommitResponse
from kohort.wire.schema import Message

GROUP = "delays"
WALL = 1_357_000_000_000


@dataclass
class Application:
    """A member, its connection and its application."""

    name: str
    member: ClassicMember
    requests: deque[Send] = field(default_factory=deque)
    answers: deque[tuple[int, Message]] = field(default_factory=deque)
    callbacks: deque[Callback] = field(default_factory=deque)
    jobs: deque[AssignmentJob] = field(default_factory=deque)
    commits: deque[tuple[int, CommitIdentity, dict[TopicPartition, OffsetAndMetadata]]] = field(
        default_factory=deque
    )
    looking_up: bool = False
    deferring: bool = False
    # What the application believes to own, by the calls it got.
    believes: set[TopicPartition] = field(default_factory=set)
    words: list[tuple[Ownership, frozenset[TopicPartition]]] = field(default_factory=list)
    raised: list[Exception] = field(default_factory=list)


class World:
    """One shard, and any number of applications."""

    def __init__(self, config: CoordinatorConfig | None = None) -> None:
        self.config = config or CoordinatorConfig(group_initial_rebalance_delay_ms=0)
        self.now = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.observed: list[GroupEvent] = []
        self.applications: dict[str, Application] = {}
        self.topics = {"flights": 8}
        self._tokens: dict[int, tuple[Application, int]] = {}
        self._token = 0
        self._next_commit = -1
        self.shard = Shard(self.config)
        self.reload()

    # ----------------------------------------------------------------------------- coordinator

    def reload(self) -> None:
        """Take the shard down, and bring up a new one from the log."""
        self.coordinate(Unload())
        before = self.shard.log
        self.shard = Shard(self.config)
        self.shard.load_started()
        for key, value in self.log:
            record = group_log.decode_record(key, value)
            assert record is not None
            self.shard.apply(record)
        assert self.shard.log == before
        self.observed += self.shard.load_finished(self.now)

    def coordinate(self, event: ShardEvent) -> Effects[ShardSession]:
        effects = self.shard.decide(event, self.now)
        for record in effects.records:
            self.log.append(group_log.encode_record(record.key, record.value))
            self.shard.apply(record)
        self.shard.install(effects.session)
        self.observed += effects.observed
        for reply in effects.replies:
            application, token = self._tokens.pop(reply.token)
            application.answers.append((token, reply.response))
        return effects

    # ------------------------------------------------------------------------------ members

    def start(self, name: str, *assignors: Assignor, instance: str | None = None) -> Application:
        config = MemberConfig(
            group_id=GROUP,
            group_instance_id=instance,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=3_000,
            max_poll_interval_ms=60_000,
        )
        member = ClassicMember(config, assignors or (RangeAssignor(),))
        self.applications[name] = Application(name, member)
        return self.applications[name]

    def tell(self, application: Application, event: MemberEvent) -> Effects[MemberSession]:
        effects = application.member.decide(event, self.now)
        application.member.install(effects.session)
        application.requests += effects.sends
        application.callbacks += effects.callbacks
        application.jobs += effects.jobs
        application.raised += effects.raised
        application.looking_up |= effects.find_coordinator
        self.observed += effects.observed
        return effects

    # --------------------------------------------------------------------------- single steps

    def deliver_request(self, application: Application) -> None:
        send = application.requests.popleft()
        self._token += 1
        self._tokens[self._token] = (application, send.token)
        self.coordinate(
            RequestArrived(
                token=self._token,
                request=send.request,
                version=type(send.request).max_version,
                client_id=application.name,
                client_host="/127.0.0.1",
                unique_id=str(self._token),
                wall_ms=WALL + self.now,
            )
        )

    def deliver_answer(self, application: Application) -> None:
        token, response = application.answers.popleft()
        if isinstance(response, OffsetCommitResponse):
            self._note_commit(application, response)
            return
        self.tell(application, ResponseArrived(token, response))

    def answer_lookup(self, application: Application) -> None:
        application.looking_up = False
        self.tell(application, CoordinatorKnown())

    def run_callback(self, application: Application) -> None:
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

    def run_job(self, application: Application) -> None:
        job = application.jobs.popleft()
        cluster = ClusterView(self.topics)
        try:
            assignments = leader.compute(job, application.member.assignors, cluster)
        except LocalProtocolError as error:
            self.tell(application, JobDone(job.token, None, str(error)))
        else:
            self.tell(application, JobDone(job.token, assignments))

    def commit(self, application: Application) -> None:
        """Commit offset 7 for all that the application believes to own, through the network."""
        offsets = dict.fromkeys(application.believes, OffsetAndMetadata(7))
        try:
            request = application.member.commit_request(offsets)
        except RebalanceInProgressError:  # L11
            return
        sent = application.member.identity
        application.commits.append((self._next_commit, sent, offsets))
        application.requests.append(Send(self._next_commit, request))
        self._next_commit -= 1

    def _note_commit(self, application: Application, response: OffsetCommitResponse) -> None:
        """Only a member of the present generation may commit, and only what it owns (S10)."""
        _, sent, _ = application.commits.popleft()
        codes = [p.error_code for topic in response.topics for p in topic.partitions]
        worst = max(codes, default=0)
        verdict = application.member.commit_verdict(sent, worst)
        assert (verdict is CommitVerdict.DONE) == (worst == 0)
        self.tell(application, CommitAnswered(sent, worst))

    def drop_connection(self, application: Application) -> None:
        """Lose what is on its way, both ways; the coordinator does not notice."""
        lost = [send.token for send in application.requests]
        lost += [token for owner, token in self._tokens.values() if owner is application]
        self._tokens = {
            key: (Application("", application.member), 0)
            if owner is application
            else (owner, token)
            for key, (owner, token) in self._tokens.items()
        }
        application.requests.clear()
        application.answers.clear()
        application.commits.clear()
        self.tell(application, CoordinatorLost("connection closed"))
        for token in lost:
            self.tell(application, RequestFailed(token, "connection closed"))

    def kill(self, name: str) -> None:
        del self.applications[name]

    # ------------------------------------------------------------------------------- running

    def work(self, application: Application) -> bool:
        """Do the first thing there is to do for an application; False: there is none."""
        if application.looking_up:
            self.answer_lookup(application)
        elif application.requests:
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
        """Let everything that is on its way arrive; time stands still."""
        for _ in range(10_000):
            worked = sum(self.work(entry) for entry in list(self.applications.values()))
            if not worked and not self.expire():
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

    def advance(self, milliseconds: int, *, poll: bool = True) -> None:
        """Let time pass in steps of a quarter of a second; everything arrives at once."""
        end = self.now + milliseconds
        while self.now < end:
            self.now = min(self.now + 250, end)
            if poll:
                for application in list(self.applications.values()):
                    if application.member.state is not MemberState.CLOSED:
                        self.tell(application, Polled())
            self.settle()

    # ----------------------------------------------------------------------------- questions

    def owners(self) -> dict[TopicPartition, list[str]]:
        """Return who of the present members believes to own what."""
        owners: dict[TopicPartition, list[str]] = {}
        for name, application in sorted(self.applications.items()):
            for partition in sorted(application.member.assigned):
                owners.setdefault(partition, []).append(name)
        return owners

    def everybody_is_stable(self) -> bool:
        return all(entry.member.state is MemberState.STABLE for entry in self.applications.values())
