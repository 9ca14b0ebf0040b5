"""One member of a consumer group, and the test in its coordinator's and application's place."""

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
    """Drives one member; nothing arrives that the test does not send."""

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
        # What a member sends and does to make its group's assignment (K61).
        self.asides: deque[Send] = deque()
        self.jobs: deque[MemberJob] = deque()
        self.callbacks: deque[Callback] = deque()
        self.raised: list[Exception] = []
        self.observed: list[GroupEvent] = []
        self.looking_up = False
        # What the application believes to own, by the calls it got.
        self.believes: set[TopicPartition] = set()
        self.words: list[tuple[Ownership, frozenset[TopicPartition]]] = []

    def state(self) -> ConsumerMemberState:
        return self.member.session.state

    @property
    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat on its way."""
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
        """Let the application take the call it is waiting for."""
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
        """Let time pass; what becomes due, does."""
        self.now += milliseconds
        while (due := self.member.next_deadline()) is not None and due <= self.now:
            self.tell(Tick())


def joining(stage: Stage | None = None, topics: frozenset[str] = frozenset({"flights"})) -> Stage:
    """A member whose first heartbeat is on its way."""
    stage = stage or Stage()
    stage.tell(Subscribed(topics))
    stage.tell(Polled())
    stage.find()
    assert stage.state() is ConsumerMemberState.JOINING
    return stage


def stable(*numbers: int, stage: Stage | None = None, epoch: int = 1) -> Stage:
    """A member that owns these partitions of flights, with nothing on its way."""
    stage = joining(stage)
    stage.answer(epoch, assignment(*numbers))
    stage.called()
    stage.answer(epoch)
    assert stage.state() is ConsumerMemberState.STABLE
    assert not stage.requests
    stage.words.clear()
    return stage


def reconciling(*numbers: int) -> Stage:
    """A member that owned flights 0 and 1 and is given these; the application is being called."""
    stage = stable(0, 1)
    stage.wait(INTERVAL_MS)
    stage.answer(2, assignment(*numbers))
    assert stage.state() is ConsumerMemberState.RECONCILING
    assert stage.callbacks
    return stage
