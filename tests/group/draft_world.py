"""A coordinator and consumers of the draft protocol in one process, in virtual time.

As in `world`: requests and answers travel when the test says so, one at a time, in order for each
consumer; the log is a list of encoded records. The coordinator's assignments wait in `jobs`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from uuid import NAMESPACE_DNS, uuid5

from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.consumer.topics import TopicsImage, TopicView
from kohort.group.coordinator.draft import jobs
from kohort.group.coordinator.draft.group import DraftGroup
from kohort.group.coordinator.draft.jobs import DraftAssignmentJob, DraftJobDone
from kohort.group.coordinator.draft.router import group_of
from kohort.group.coordinator.events import RequestArrived, ShardEvent, TopicsChanged, Unload
from kohort.group.coordinator.events import Tick as ShardTick
from kohort.group.coordinator.shard import Shard
from kohort.group.effects import Callback, Effects, Send
from kohort.group.events import GroupEvent, Ownership
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.config import MemberConfig
from kohort.group.member.draft.machine import DraftMember, DraftMemberSession, DraftMemberState
from kohort.group.member.events import (
    CallbackDone,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    MemberEvent,
    Polled,
    RequestFailed,
    ResponseArrived,
    Subscribed,
    Tick,
)
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire import group_log
from kohort.wire.messages.offsets import OffsetCommitResponse
from kohort.wire.schema import Message

GROUP = "delays"
WALL = 1_357_000_000_000
FLIGHTS = frozenset({"flights"})


@dataclass
class Application:
    """A consumer, its connection and its application."""

    name: str
    member: DraftMember
    requests: deque[Send] = field(default_factory=deque)
    answers: deque[tuple[int, Message]] = field(default_factory=deque)
    callbacks: deque[Callback] = field(default_factory=deque)
    commits: deque[CommitIdentity] = field(default_factory=deque)
    verdicts: list[CommitVerdict] = field(default_factory=list)
    looking_up: bool = False
    deferring: bool = False
    reachable: bool = True
    # What the application believes to own, by the calls it got.
    believes: set[TopicPartition] = field(default_factory=set)
    words: list[tuple[Ownership, frozenset[TopicPartition]]] = field(default_factory=list)
    raised: list[Exception] = field(default_factory=list)


class DraftWorld:
    """One shard, and any number of applications."""

    def __init__(self) -> None:
        self.config = CoordinatorConfig()
        self.now = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.observed: list[GroupEvent] = []
        self.applications: dict[str, Application] = {}
        self.topics = {"flights": 8}
        self.jobs: deque[DraftAssignmentJob] = deque()
        self._tokens: dict[int, tuple[Application | None, int]] = {}
        self._token = 0
        self._next_commit = -1
        self.shard = Shard(self.config)
        self.reload()

    # ----------------------------------------------------------------------------- coordinator

    def reload(self) -> None:
        """Take the shard down, and bring up a new one from the log."""
        self.coordinate(Unload())
        before = self.shard.log
        self.jobs.clear()
        self.shard = Shard(self.config)
        self.tell_topics()
        self.shard.load_started()
        for key, value in self.log:
            record = group_log.decode_record(key, value)
            assert record is not None
            self.shard.apply(record)
        assert self.shard.log == before
        self.observed += self.shard.load_finished(self.now)

    def tell_topics(self, **counts: int) -> None:
        """Let topics have these numbers of partitions, and tell the shard."""
        self.topics |= counts
        topics = self.topics.items()
        views = ((name, TopicView(uuid5(NAMESPACE_DNS, name), count)) for name, count in topics)
        self.coordinate(TopicsChanged(TopicsImage.of(views, TopicsImage())))

    def coordinate(self, event: ShardEvent) -> None:
        effects = self.shard.decide(event, self.now)
        for record in effects.records:
            self.log.append(group_log.encode_record(record.key, record.value))
            self.shard.apply(record)
        self.shard.install(effects.session)
        self.observed += effects.observed
        self.jobs += effects.draft_jobs
        for reply in effects.replies:
            application, token = self._tokens.pop(reply.token)
            if application is not None:
                application.answers.append((token, reply.response))

    def run_job(self) -> None:
        job = self.jobs.popleft()
        self.coordinate(DraftJobDone(job, jobs.compute(job)))

    @property
    def group(self) -> DraftGroup:
        return group_of(self.shard.session, self.shard.log, GROUP)

    # ------------------------------------------------------------------------------ consumers

    def start(self, name: str) -> Application:
        config = MemberConfig(
            group_id=GROUP,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=3_000,
            max_poll_interval_ms=60_000,
        )
        self.applications[name] = Application(name, DraftMember(config, name))
        return self.applications[name]

    def joined(self, *names: str) -> list[Application]:
        """Start applications and let their group settle."""
        applications = [self.start(name) for name in names]
        for application in applications:
            self.tell(application, Subscribed(FLIGHTS))
        self.advance(4_000)
        assert self.everybody_is_part()
        return applications

    def tell(self, application: Application, event: MemberEvent) -> Effects[DraftMemberSession]:
        effects = application.member.decide(event, self.now)
        application.member.install(effects.session)
        application.requests += effects.sends
        application.callbacks += effects.callbacks
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
                version=min(type(send.request).max_version, 9),
                client_id=application.name,
                client_host="/127.0.0.1",
                wall_ms=WALL + self.now,
            )
        )

    def deliver_answer(self, application: Application) -> None:
        token, response = application.answers.popleft()
        if isinstance(response, OffsetCommitResponse):
            self._note_commit(application, response)
        else:
            self.tell(application, ResponseArrived(token, response))

    def run_callback(self, application: Application) -> None:
        callback = application.callbacks.popleft()
        application.words.append((callback.change, callback.partitions))
        if callback.change is Ownership.ASSIGNED:
            assert not application.believes
            application.believes |= callback.partitions
        else:
            assert application.believes == callback.partitions
            application.believes.clear()
        self.tell(application, CallbackDone(callback.token))

    def commit(self, application: Application) -> None:
        """Commit offset 7 for all that the application believes to own, through the network."""
        offsets = dict.fromkeys(application.believes, OffsetAndMetadata(7))
        request = application.member.commit_request(offsets)
        application.commits.append(application.member.identity)
        application.requests.append(Send(self._next_commit, request))
        self._next_commit -= 1

    def _note_commit(self, application: Application, response: OffsetCommitResponse) -> None:
        sent = application.commits.popleft()
        codes = [p.error_code for topic in response.topics for p in topic.partitions]
        worst = max(codes, default=0)
        verdict = application.member.commit_verdict(sent, worst)
        assert (verdict is CommitVerdict.DONE) == (worst == 0)
        application.verdicts.append(verdict)
        self.tell(application, CommitAnswered(sent, worst))

    def drop_connection(self, application: Application) -> None:
        """Lose what is on its way, both ways; the coordinator does not notice."""
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

    def work(self, application: Application) -> bool:
        """Do the first thing there is to do for an application; False: there is none."""
        if application.looking_up and application.reachable:
            application.looking_up = False
            self.tell(application, CoordinatorKnown())
        elif application.requests and application.reachable:
            self.deliver_request(application)
        elif application.answers:
            self.deliver_answer(application)
        elif application.callbacks and not application.deferring:
            self.run_callback(application)
        else:
            return False
        return True

    def settle(self) -> None:
        """Let everything that is on its way arrive; time stands still."""
        for _ in range(10_000):
            worked = sum(self.work(entry) for entry in list(self.applications.values()))
            if self.jobs:
                self.run_job()
            elif not worked and not self.expire():
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
            for application in list(self.applications.values()):
                if poll and application.member.state is not DraftMemberState.CLOSED:
                    self.tell(application, Polled())
            self.settle()

    # ----------------------------------------------------------------------------- questions

    def owners(self) -> dict[TopicPartition, list[str]]:
        """Return who of the present consumers believes to own what."""
        owners: dict[TopicPartition, list[str]] = {}
        for name, application in sorted(self.applications.items()):
            for partition in sorted(application.member.assigned):
                owners.setdefault(partition, []).append(name)
        return owners

    def everybody_is_part(self) -> bool:
        states = {entry.member.state for entry in self.applications.values()}
        return states <= {DraftMemberState.PART_OF_GROUP}


def partitions(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("flights", number) for number in numbers)
