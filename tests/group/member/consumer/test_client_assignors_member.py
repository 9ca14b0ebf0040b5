"""A member that computes its group's assignment: its reports, requests and results (K60, K61)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from kohort.errors import ConfigError, ErrorCode
from kohort.group.assignors import (
    Assignor,
    ClusterView,
    CooperativeStickyAssignor,
    RangeAssignor,
    Subscription,
)
from kohort.group.assignors.interface import Assignment as Given
from kohort.group.assignors.interface import GroupMetadata
from kohort.group.effects import AssignmentJob, Effects, SubscriptionJob
from kohort.group.events import AssignorUnsupported, Ownership
from kohort.group.member import leader
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer import client_assignors
from kohort.group.member.consumer.machine import (
    ConsumerMember,
    ConsumerMemberSession,
    ConsumerMemberState,
)
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CoordinatorKnown,
    JobDone,
    MemberEvent,
    Polled,
    RequestFailed,
    ResponseArrived,
    Subscribed,
    Tick,
    TopicsNamed,
)
from kohort.group.subscription import decode_assignment, encode_assignment
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
    PreparedMember,
    PreparedTopic,
)
from kohort.wire.messages.consumer_group import (
    AssignmentMetadata,
    ClientAssignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.group.member.consumer.consumer_member import DELAYS, FLIGHTS, NAMES, assignment, flights

ME = "north-1"


class Mine(Assignor):
    name: ClassVar[str] = "mine"
    version: ClassVar[int] = 2

    def __init__(self) -> None:
        self.load = b"idle"
        self.told: list[tuple[Given, GroupMetadata]] = []

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        return self.load + b" with " + ",".join(sorted(topics)).encode()

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        first = min(subscriptions)
        everything = [TopicPartition(t, n) for t, c in cluster.partitions.items() for n in range(c)]
        return {first: everything}

    def on_assignment(self, assignment: Given, metadata: GroupMetadata) -> None:
        self.told.append((assignment, metadata))


class Stage:
    """A member with an own assignor; the test answers it."""

    def __init__(self, *assignors: Assignor) -> None:
        self.mine = Mine()
        config = MemberConfig(group_id="g", group_instance_id="i", max_poll_interval_ms=60_000)
        self.member = ConsumerMember(config, ME, assignors=assignors or (self.mine,))
        self.now = 1_000
        self.open: list[tuple[int, Message]] = []
        self.jobs: list[AssignmentJob] = []
        self.unsupported: list[tuple[str, ...]] = []

    def tell(self, event: MemberEvent) -> Effects[ConsumerMemberSession]:
        effects = self.member.decide(event, self.now)
        self.member.install(effects.session)
        self.open += [(send.token, send.request) for send in effects.sends]
        for job in effects.jobs:
            if isinstance(job, SubscriptionJob):
                self.tell(
                    JobDone(job.token, leader.subscription_user_data(job, self.member.assignors))
                )
            else:
                self.jobs.append(job)
        for fact in effects.observed:
            if isinstance(fact, AssignorUnsupported):
                self.unsupported.append(fact.assignors)
        for callback in effects.callbacks:
            if callback.change is Ownership.ASSIGNED:
                self.member.tell_assignor(callback)
            self.tell(CallbackDone(callback.token))
        if self.member.unnamed:
            self.tell(TopicsNamed(NAMES))
        return effects

    def join(self, *, asks_members: bool = True) -> ConsumerGroupHeartbeatRequest:
        self.tell(Subscribed(frozenset({"flights"})))
        self.tell(Polled())
        self.tell(CoordinatorKnown(asks_members=asks_members))
        return self.heartbeat

    def take(self, kind: type[Message]) -> tuple[int, Message]:
        found = next(each for each in self.open if isinstance(each[1], kind))
        self.open.remove(found)
        return found

    @property
    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        return next(r for _, r in self.open if isinstance(r, ConsumerGroupHeartbeatRequest))

    def beat(self, epoch: int = 1, *given: int, **more: object) -> None:
        """Answer the pending heartbeat, and acknowledge its effects."""
        token, _ = self.take(ConsumerGroupHeartbeatRequest)
        response = ConsumerGroupHeartbeatResponse(
            member_id=ME,
            member_epoch=epoch,
            heartbeat_interval_ms=5_000,
            assignment=assignment(*given) if given else None,
            **more,  # type: ignore[arg-type]  # fields of the response
        )
        self.tell(ResponseArrived(token, response))

    def asked(self) -> None:
        """Ask the member for an assignment."""
        self.join()
        self.beat(1, 0, should_compute_assignment=True)

    def prepare(self, **more: object) -> None:
        token, request = self.take(ConsumerGroupPrepareAssignmentRequest)
        assert isinstance(request, ConsumerGroupPrepareAssignmentRequest)
        assert (request.group_id, request.member_id, request.member_epoch) == ("g", ME, 1)
        self.tell(ResponseArrived(token, prepared(**more)))

    def computed(self, given: Mapping[str, bytes] | None) -> ConsumerGroupInstallAssignmentRequest:
        job = self.jobs.pop()
        self.tell(JobDone(job.token, given, None if given is not None else "boom"))
        request = self.open[-1][1]
        assert isinstance(request, ConsumerGroupInstallAssignmentRequest)
        return request

    def installed(self, code: int = 0) -> None:
        token, _ = self.take(ConsumerGroupInstallAssignmentRequest)
        self.tell(ResponseArrived(token, ConsumerGroupInstallAssignmentResponse(error_code=code)))

    @property
    def is_computing(self) -> bool:
        return self.member.session.computation is not None


def prepared(**more: object) -> ConsumerGroupPrepareAssignmentResponse:
    def member(name: str, *held: int) -> PreparedMember:
        return PreparedMember(
            member_id=name,
            member_epoch=1,
            rack_id="r",
            subscribed_topic_names=("flights",),
            version=2,
            metadata=name.encode(),
            topic_partitions=(TopicPartitions(topic_id=FLIGHTS, partitions=held),),
        )

    values: dict[str, object] = {
        "group_epoch": 7,
        "assignor_name": "mine",
        "members": (member(ME, 0), member("south-1", 1)),
        "topics": (PreparedTopic(topic_id=FLIGHTS, topic_name="flights", num_partitions=3),),
    }
    return ConsumerGroupPrepareAssignmentResponse(**(values | more))  # type: ignore[arg-type]  # fields of the response


def test_k60_a_member_says_what_assignors_it_has_once() -> None:
    """Version range and metadata per assignor; later heartbeats leave them out (L31)."""
    stage = Stage()
    assert stage.join().client_assignors == (
        ClientAssignor(name="mine", maximum_version=2, version=2, metadata=b"idle with flights"),
    )
    stage.mine.load = b"busy"
    stage.beat(1, 0)
    assert stage.heartbeat.client_assignors is None


def test_k60_another_subscription_asks_the_assignor_anew() -> None:
    stage = Stage()
    stage.join()
    stage.beat(1, 0)
    stage.beat(1)
    stage.mine.load = b"busy"
    stage.tell(Subscribed(frozenset({"flights", "delays"})))
    assert stage.heartbeat.subscribed_topic_names == ("delays", "flights")
    stage.beat(2)  # heartbeats do not wait for a slow assignor
    (said,) = stage.heartbeat.client_assignors or ()
    assert said.metadata == b"busy with delays,flights"


def test_k60_a_member_joins_once_its_assignors_were_asked() -> None:
    member = ConsumerMember(MemberConfig(group_id="g"), ME, assignors=(Mine(),))
    member.install(member.decide(Subscribed(frozenset({"flights"})), 0).session)
    effects = member.decide(Polled(), 0)
    member.install(effects.session)
    (job,) = effects.jobs
    assert job == SubscriptionJob(job.token, frozenset({"flights"}))
    effects = member.decide(CoordinatorKnown(), 0)
    member.install(effects.session)
    assert not effects.sends
    effects = member.decide(JobDone(job.token, None, "it raised"), 0)
    member.install(effects.session)
    assert [str(error) for error in effects.raised] == ["it raised"]
    due = member.next_deadline()
    assert due is not None
    member.install(member.decide(Tick(), due).session)
    assert member.session.asking is not None
    assert member.session.asking != job.token
    late = member.decide(JobDone(job.token, {"mine": b"late"}), due)
    assert late.session == member.session
    effects = member.decide(JobDone(member.session.asking, {"mine": b"now"}), due)
    (send,) = effects.sends
    assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
    (said,) = send.request.client_assignors or ()
    assert said.metadata == b"now"


def test_k60_a_member_whose_assignor_cannot_be_asked_leaves_at_once() -> None:
    member = ConsumerMember(MemberConfig(group_id="g"), ME, assignors=(Mine(),))
    for event in (Subscribed(frozenset({"flights"})), Polled(), CoordinatorKnown()):
        member.install(member.decide(event, 0).session)
    (token,) = [member.session.asking]
    assert token is not None
    member.install(member.decide(Closing(), 0).session)
    assert member.is_closed
    after = member.decide(JobDone(token, {"mine": b""}), 0)
    assert after.session == member.session


def test_k60_a_member_without_assignors_says_and_does_nothing_of_it() -> None:
    member = ConsumerMember(MemberConfig(group_id="g"), ME)
    assert not member.assignors
    stage = Stage()
    stage.member = member
    assert stage.join().client_assignors is None
    stage.beat(1, 0, should_compute_assignment=True)
    assert not stage.is_computing


def test_k60_a_coordinator_that_asks_nobody_is_told_nothing() -> None:
    """A real Kafka: this is reported once, and again only after a coordinator has asked."""
    stage = Stage()
    assert stage.join(asks_members=False).client_assignors is None
    stage.tell(CoordinatorKnown(asks_members=False))
    assert stage.unsupported == [("mine",)]
    stage.tell(CoordinatorKnown(asks_members=True))
    stage.tell(CoordinatorKnown(asks_members=False))
    assert len(stage.unsupported) == 2


def test_k61_it_prepares_computes_and_installs() -> None:
    stage = Stage()
    stage.asked()
    stage.prepare()
    (job,) = stage.jobs
    assert job.assignor == "mine"
    assert dict(job.partitions or {}) == {"flights": 3}
    south = job.subscriptions["south-1"]
    assert (south.owned, south.user_data, south.rack_id) == (flights(1), b"south-1", "r")
    assert {entry.generation for entry in job.subscriptions.values()} == {7}
    given = client_assignors.compute(job, stage.member.assignors, ClusterView(job.partitions or {}))
    request = stage.computed(given)
    assert (request.group_epoch, request.member_epoch, request.error) == (7, 1, 0)
    mine, south_s = request.members
    assert mine.topic_partitions == (TopicPartitions(topic_id=FLIGHTS, partitions=(0, 1, 2)),)
    assert (south_s.member_id, south_s.topic_partitions) == ("south-1", ())
    stage.installed()
    assert not stage.is_computing
    assert stage.heartbeat.member_epoch == 1, "it hears at once what it is to have"


def test_k61_heartbeats_go_on_while_it_computes_and_ask_for_nothing_twice() -> None:
    stage = Stage()
    stage.asked()
    stage.prepare()
    stage.beat(1, should_compute_assignment=True)
    assert len(stage.jobs) == 1
    assert not any(isinstance(r, ConsumerGroupPrepareAssignmentRequest) for _, r in stage.open)


def test_k61_an_assignor_that_raises_is_reported() -> None:
    stage = Stage()
    stage.asked()
    stage.prepare()
    request = stage.computed(None)
    assert (request.error, request.members) == (1, ())
    stage.installed()
    assert not stage.is_computing
    assert stage.member.state is not ConsumerMemberState.FATAL


def test_k61_an_assignor_that_gives_away_what_is_not_there_is_reported() -> None:
    stage = Stage()
    stage.asked()
    stage.prepare()
    request = stage.computed({ME: encode_assignment([TopicPartition("dreams", 0)])})
    assert request.error == 1


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH])
def test_k61_a_refusal_ends_the_computation_and_nothing_else(code: ErrorCode) -> None:
    """Only heartbeats decide whether the member belongs to the group."""
    stage = Stage()
    stage.asked()
    before = stage.member.assigned
    stage.prepare(error_code=code)
    assert not stage.is_computing
    assert not stage.jobs
    stage.beat(1, should_compute_assignment=True)
    stage.prepare()
    stage.computed({})
    stage.installed(code)
    assert not stage.is_computing
    assert stage.member.assigned == before


def test_k61_an_assignor_that_it_does_not_have_is_not_asked() -> None:
    stage = Stage()
    stage.asked()
    stage.prepare(assignor_name="yours")
    assert not stage.is_computing


def test_k61_a_lost_request_ends_the_computation() -> None:
    stage = Stage()
    stage.asked()
    token, _ = stage.take(ConsumerGroupPrepareAssignmentRequest)
    stage.tell(RequestFailed(token, "connection closed"))
    assert not stage.is_computing
    stage.beat(1, should_compute_assignment=True)
    assert stage.is_computing


def test_k61_who_leaves_forgets_the_job() -> None:
    stage = Stage()
    stage.asked()
    stage.prepare()
    (job,) = stage.jobs
    stage.tell(Closing())
    stage.tell(JobDone(job.token, {}))
    assert not any(isinstance(r, ConsumerGroupInstallAssignmentRequest) for _, r in stage.open)


def test_k61_who_is_fenced_forgets_the_job() -> None:
    stage = Stage()
    stage.asked()
    stage.prepare()
    (job,) = stage.jobs
    token, _ = stage.take(ConsumerGroupHeartbeatRequest)
    fenced = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
    stage.tell(ResponseArrived(token, fenced))
    stage.tell(JobDone(job.token, {}))
    assert stage.heartbeat.member_epoch == 0
    assert stage.heartbeat.client_assignors, "it joins with all there is to say"
    assert not stage.is_computing


# -------------------------------------------------------------------------------- on_assignment


def word(text: bytes, assignor: str = "mine") -> AssignmentMetadata:
    return AssignmentMetadata(assignor=assignor, version=2, metadata=text)


def test_k61_l5_its_assignor_is_told_what_the_other_one_said() -> None:
    stage = Stage()
    stage.join()
    stage.beat(1, 0, 1, assignment_metadata=word(b"take care"))
    ((given, metadata),) = stage.mine.told
    assert given == Given(flights(0, 1), b"take care")
    assert (metadata.group_id, metadata.member_id, metadata.generation_id) == ("g", ME, 1)
    assert metadata.group_instance_id == "i"


def test_k61_another_word_for_the_same_partitions_is_told_too() -> None:
    stage = Stage()
    stage.join()
    stage.beat(1, 0, assignment_metadata=word(b"one"))
    stage.beat(2, assignment_metadata=word(b"two"))
    assert [given.user_data for given, _ in stage.mine.told] == [b"one", b"two"]
    stage.beat(2, assignment_metadata=word(b"two"))
    assert len(stage.mine.told) == 2
    assert stage.member.assigned == flights(0)


def test_k61_what_the_server_assigned_is_not_told_to_an_assignor() -> None:
    stage = Stage()
    stage.join()
    stage.beat(1, 0, assignment_metadata=word(b"one"))
    stage.beat(2, 0, 1)
    assert len(stage.mine.told) == 1


def test_k61_a_word_for_an_assignor_that_it_does_not_have_is_passed_over() -> None:
    stage = Stage()
    stage.join()
    stage.beat(1, 0, assignment_metadata=word(b"one", "yours"))
    assert stage.mine.told == []
    assert stage.member.assigned == flights(0)


# -------------------------------------------------------------------------------------- compute


def job(assignor: str, owned: Mapping[str, Sequence[int]]) -> AssignmentJob:
    members = {
        member: Subscription(topics=frozenset({"flights"}), owned=flights(*held), generation=7)
        for member, held in owned.items()
    }
    return AssignmentJob(1, assignor, members, {"flights": 4})


def shares(work: AssignmentJob, assignor: Assignor) -> dict[str, int]:
    view = ClusterView(work.partitions or {})
    made = client_assignors.compute(work, {assignor.name: assignor}, view)
    return {member: len(decode_assignment(data)[0]) for member, data in made.items()}


def test_k60_a_cooperative_assignor_need_not_wait_for_a_second_round() -> None:
    """The coordinator has moving partitions revoked first (K21): none may be left out."""
    work = job("cooperative-sticky", {"a": [0, 1, 2, 3], "b": []})
    assert shares(work, CooperativeStickyAssignor()) == {"a": 2, "b": 2}


def test_k60_the_same_class_serves_the_classic_protocol_and_this_one() -> None:
    assert shares(job("range", {"a": [], "b": []}), RangeAssignor()) == {"a": 2, "b": 2}


def test_k61_who_is_not_a_member_is_left_to_the_coordinator_to_refuse() -> None:
    class Wrong(Mine):
        def assign(
            self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
        ) -> Mapping[str, Sequence[TopicPartition]]:
            assert cluster.partitions
            assert subscriptions
            return {"stranger": [TopicPartition("flights", 0)]}

    assert shares(job("mine", {"a": []}), Wrong()) == {"a": 0, "stranger": 1}


def test_two_assignors_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="different names"):
        ConsumerMember(MemberConfig(group_id="g"), ME, assignors=(Mine(), Mine()))


def test_topics_of_another_id_are_named_by_the_answer() -> None:
    """K61: the assignor does not see a member's partitions of a deleted topic."""
    stage = Stage()
    stage.asked()
    gone = PreparedMember(
        member_id=ME,
        member_epoch=1,
        subscribed_topic_names=("flights",),
        topic_partitions=(TopicPartitions(topic_id=DELAYS, partitions=(0,)),),
    )
    stage.prepare(members=(gone,))
    (job_,) = stage.jobs
    assert job_.subscriptions[ME].owned == frozenset()
