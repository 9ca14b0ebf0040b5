"""A member of a consumer group; the test plays its coordinator and application."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from uuid import UUID

from kohort.group.assignors import Assignor
from kohort.group.effects import Callback, MemberJob, Send
from kohort.group.events import GroupEvent, Ownership
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer.machine import ConsumerMember, ConsumerMemberState
from kohort.group.member.events import (
    CallbackDone,
    CoordinatorKnown,
    MemberEvent,
    Polled,
    RequestFailed,
    ResponseArrived,
    Subscribed,
    Tick,
    TopicsNamed,
)
from kohort.types import TopicPartition
from kohort.wire.messages.consumer_group import (
    Assignment,
    AssignmentMetadata,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

FLIGHTS, DELAYS = UUID(int=1), UUID(int=2)
NAMES = {FLIGHTS: "flights", DELAYS: "delays"}
INTERVAL_MS = 5_000
MEMBER_ID = "north-1"


def flights(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("flights", number) for number in numbers)


def assignment(*numbers: int, topic: UUID = FLIGHTS) -> Assignment:
    if not numbers:
        return Assignment(topic_partitions=())
    return Assignment(topic_partitions=(TopicPartitions(topic_id=topic, partitions=numbers),))


class Stage:
    """Drives one member; only the test sends events."""

    def __init__(
        self,
        config: MemberConfig | None = None,
        *,
        knows_names: bool = True,
        member_id: str = MEMBER_ID,
        names: Mapping[UUID, str] = NAMES,
        assignors: Sequence[Assignor] = (),
    ) -> None:
        self.config = config or MemberConfig(group_id="g", max_poll_interval_ms=60_000)
        self.member = ConsumerMember(self.config, member_id, assignors=assignors)
        self.now = 1_000
        self.knows_names = knows_names
        self.names = names
        self.requests: deque[Send] = deque()
        # Requests and jobs for computing the group's assignment (K61).
        self.asides: deque[Send] = deque()
        self.jobs: deque[MemberJob] = deque()
        self.callbacks: deque[Callback] = deque()
        self.raised: list[Exception] = []
        self.observed: list[GroupEvent] = []
        self.looking_up = False
        # The partitions that the application believes to own, according to its callbacks.
        self.believes: set[TopicPartition] = set()
        self.words: list[tuple[Ownership, frozenset[TopicPartition]]] = []

    def state(self) -> ConsumerMemberState:
        return self.member.session.state

    @property
    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Return the pending heartbeat."""
        (send,) = self.requests
        assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
        return send.request

    def tell(self, event: MemberEvent) -> None:
        effects = self.member.decide(event, self.now)
        self.member.install(effects.session)
        for send in effects.sends:
            is_beat = isinstance(send.request, ConsumerGroupHeartbeatRequest)
            (self.requests if is_beat else self.asides).append(send)
        self.jobs += effects.jobs
        self.callbacks += effects.callbacks
        self.raised += effects.raised
        self.observed += effects.observed
        self.looking_up |= effects.find_coordinator
        if self.knows_names and self.member.unnamed & self.names.keys():
            self.tell(TopicsNamed(self.names))

    def find(self) -> None:
        assert self.looking_up
        self.looking_up = False
        self.tell(CoordinatorKnown())

    def answer(
        self,
        epoch: int = 1,
        given: Assignment | None = None,
        *,
        code: int = 0,
        message: str | None = None,
        member_id: str | None = MEMBER_ID,
        interval_ms: int = INTERVAL_MS,
        computes: bool = False,
        word: AssignmentMetadata | None = None,
    ) -> None:
        response = ConsumerGroupHeartbeatResponse(
            error_code=code,
            error_message=message,
            member_id=member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=given,
            should_compute_assignment=computes,
            assignment_metadata=word,
        )
        self.tell(ResponseArrived(self.requests.popleft().token, response))

    def lose_answer(self, error_code: int | None = None) -> None:
        token = self.requests.popleft().token
        self.tell(RequestFailed(token, "connection closed", error_code))

    def called(self, error: str | None = None) -> None:
        """Have the application complete its pending callback."""
        callback = self.callbacks.popleft()
        self.words.append((callback.change, callback.partitions))
        if callback.change is Ownership.ASSIGNED:
            assert not self.believes & callback.partitions
            self.believes |= callback.partitions
        else:
            assert self.believes >= callback.partitions
            self.believes -= callback.partitions
        self.tell(CallbackDone(callback.token, error))

    def wait(self, milliseconds: int) -> None:
        """Let time pass, with all events that become due."""
        self.now += milliseconds
        while (due := self.member.next_deadline()) is not None and due <= self.now:
            self.tell(Tick())


def joining(stage: Stage | None = None, topics: frozenset[str] = frozenset({"flights"})) -> Stage:
    """Return a member whose first heartbeat is pending."""
    stage = stage or Stage()
    stage.tell(Subscribed(topics))
    stage.tell(Polled())
    stage.find()
    assert stage.state() is ConsumerMemberState.JOINING
    return stage


def stable(*numbers: int, stage: Stage | None = None, epoch: int = 1) -> Stage:
    """Return a member that owns these partitions of flights, without a pending heartbeat."""
    stage = joining(stage)
    stage.answer(epoch, assignment(*numbers))
    stage.called()
    stage.answer(epoch)
    assert stage.state() is ConsumerMemberState.STABLE
    assert not stage.requests
    stage.words.clear()
    return stage


def reconciling(*numbers: int) -> Stage:
    """Return a member that owned flights 0 and 1 and gets these, with a pending callback."""
    stage = stable(0, 1)
    stage.wait(INTERVAL_MS)
    stage.answer(2, assignment(*numbers))
    assert stage.state() is ConsumerMemberState.RECONCILING
    assert stage.callbacks
    return stage
