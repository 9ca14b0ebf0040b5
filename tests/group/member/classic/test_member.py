"""The member, response by response (L1-L11): every error code at every request and state."""

from __future__ import annotations

import pytest

from kohort.errors import ConfigError, ErrorCode, LocalProtocolError
from kohort.group.assignors import Assignor, RangeAssignor
from kohort.group.assignors.interface import RebalanceProtocol
from kohort.group.coordinator.refusals import join_refused, sync_refused
from kohort.group.events import Ownership
from kohort.group.member.classic.machine import ClassicMember, ClassicMemberState
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import (
    Closing,
    CommitAnswered,
    CoordinatorKnown,
    CoordinatorLost,
    JobDone,
    LookupFailed,
    RejoinAsked,
    ResponseArrived,
    Subscribed,
    Tick,
)
from kohort.group.subscription import decode_subscription
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.group.together.world import Application, World

FLIGHTS = frozenset({"flights"})
S = ClassicMemberState
REJOINED = S.PREPARING_REBALANCE


def alone(*states: ClassicMemberState) -> tuple[World, Application]:
    """One member, driven until it is in one of the states."""
    world = World()
    north = world.start("north")
    world.tell(north, Subscribed(FLIGHTS))
    for _ in range(20):
        if north.member.state in states and (states != (REJOINED,) or north.requests):
            return world, north
        if not world.work(north):
            world.expire()
    raise AssertionError(north.member.state)


def answer(world: World, north: Application, response: Message) -> None:
    """Answer the pending request in place of the coordinator."""
    send = north.requests.popleft()
    world.tell(north, ResponseArrived(send.token, response))


JOIN = {
    ErrorCode.UNKNOWN_MEMBER_ID: REJOINED,
    ErrorCode.REBALANCE_IN_PROGRESS: REJOINED,
    ErrorCode.MEMBER_ID_REQUIRED: REJOINED,
    ErrorCode.NOT_COORDINATOR: S.UNJOINED,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: S.UNJOINED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: S.UNJOINED,
    ErrorCode.FENCED_INSTANCE_ID: S.FATAL,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: S.FATAL,
    ErrorCode.INVALID_SESSION_TIMEOUT: S.FATAL,
    ErrorCode.INVALID_GROUP_ID: S.FATAL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: S.FATAL,
    ErrorCode.GROUP_MAX_SIZE_REACHED: S.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: S.FATAL,
    12345: S.FATAL,
}


@pytest.mark.parametrize(("code", "state"), JOIN.items())
def test_l10_errors_of_join(code: ErrorCode, state: ClassicMemberState) -> None:
    world, north = alone(REJOINED)
    send = north.requests[0].request
    assert isinstance(send, JoinGroupRequest)
    answer(world, north, join_refused(send, 9, code, "north-1"))
    assert north.member.state is state
    assert bool(north.raised) is (state is S.FATAL)
    if state is REJOINED:
        again = north.requests[0].request
        assert isinstance(again, JoinGroupRequest)
        kept = code is ErrorCode.MEMBER_ID_REQUIRED
        assert again.member_id == ("north-1" if kept else "")


def test_a_group_of_other_assignors_is_told_with_ours() -> None:
    world, north = alone(REJOINED)
    send = north.requests[0].request
    assert isinstance(send, JoinGroupRequest)
    answer(world, north, join_refused(send, 9, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))
    names = ", ".join(each.name for each in send.protocols)
    assert f"offers the assignors {names}," in str(north.raised[0])
    assert "partition_assignment_strategy" in str(north.raised[0])


SYNC = {
    ErrorCode.UNKNOWN_MEMBER_ID: (REJOINED, False),
    ErrorCode.ILLEGAL_GENERATION: (REJOINED, True),  # KAFKA-13419
    ErrorCode.REBALANCE_IN_PROGRESS: (REJOINED, True),
    ErrorCode.NOT_COORDINATOR: (S.UNJOINED, True),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (S.UNJOINED, True),
    ErrorCode.FENCED_INSTANCE_ID: (S.FATAL, False),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (S.FATAL, False),
}


@pytest.mark.parametrize(("code", "after"), SYNC.items())
def test_l10_errors_of_sync(code: ErrorCode, after: tuple[ClassicMemberState, bool]) -> None:
    world, north = alone(S.COMPLETING_REBALANCE)
    world.run_job(north)
    assert isinstance(north.requests[0].request, SyncGroupRequest)
    answer(world, north, sync_refused(code))
    assert (north.member.state, bool(north.member.member_id)) == after


HEARTBEAT = {
    ErrorCode.NONE: (S.STABLE, True),
    ErrorCode.REBALANCE_IN_PROGRESS: (S.REVOKING, True),
    ErrorCode.UNKNOWN_MEMBER_ID: (S.REVOKING, False),
    ErrorCode.ILLEGAL_GENERATION: (S.REVOKING, True),
    ErrorCode.NOT_COORDINATOR: (S.STABLE, True),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (S.STABLE, True),
    ErrorCode.FENCED_INSTANCE_ID: (S.FATAL, False),
}


@pytest.mark.parametrize("by_commit", [False, True])
@pytest.mark.parametrize(("code", "after"), HEARTBEAT.items())
def test_l10_l11_errors_of_heartbeat_and_commit(
    code: ErrorCode, after: tuple[ClassicMemberState, bool], by_commit: bool
) -> None:
    """U5: an unknown member rejoins, and does not hang (aiokafka #575, #727)."""
    world, north = alone(S.STABLE)
    owned = north.member.assigned
    if by_commit:
        world.tell(north, CommitAnswered(north.member.identity, code))
    else:
        world.now += 3_000
        world.expire()
        assert isinstance(north.requests[0].request, HeartbeatRequest)
        answer(world, north, HeartbeatResponse(error_code=code))
    assert (north.member.state, bool(north.member.member_id)) == after
    assert north.looking_up is (code is ErrorCode.NOT_COORDINATOR)
    if north.callbacks:
        kept = code is ErrorCode.REBALANCE_IN_PROGRESS
        assert north.callbacks[0].change is (Ownership.REVOKED if kept else Ownership.LOST)
        assert north.callbacks[0].partitions == owned


def test_l9_a_heartbeat_that_is_late_does_not_shift_those_after_it() -> None:
    """Members of a group send heartbeats at the same moments; one may be busy at some."""
    world, north = alone(S.STABLE)
    first = north.member.next_deadline()
    assert first is not None
    due = []
    for late_ms in (70, 0, 4_000):
        beat = north.member.next_deadline()
        assert beat is not None
        world.now = beat + late_ms
        world.tell(north, Tick())
        answer(world, north, HeartbeatResponse(error_code=ErrorCode.NONE))
        due.append(north.member.next_deadline())
    interval_ms = north.member.config.heartbeat_interval_ms
    assert due == [first + number * interval_ms for number in (1, 2, 4)]


def test_l10_an_answer_to_who_we_were_changes_nothing() -> None:
    world, north = alone(S.STABLE)
    before = north.member.session
    for code in ErrorCode:
        world.tell(north, CommitAnswered(CommitIdentity("older", 0), code))
        assert north.member.session == before


def test_l1_a_member_needs_assignors_with_a_protocol_in_common() -> None:
    class OnlyCooperative(RangeAssignor):
        name = "only"
        supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    class Both(RangeAssignor):
        name = "both"
        supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    config = MemberConfig(group_id="g")
    wrong: list[list[Assignor]] = [
        [],
        [RangeAssignor(), RangeAssignor()],
        [Both(), OnlyCooperative(), RangeAssignor()],
    ]
    for assignors in wrong:
        with pytest.raises(ConfigError):
            ClassicMember(config, assignors)
    # the highest one that all assignors support
    assert ClassicMember(config, [Both()]).protocol is RebalanceProtocol.COOPERATIVE
    assert ClassicMember(config, [Both(), OnlyCooperative()]).protocol.name == "COOPERATIVE"
    assert ClassicMember(config, [Both(), RangeAssignor()]).protocol is RebalanceProtocol.EAGER


def test_l2_what_a_join_says() -> None:
    world, north = alone(S.STABLE)
    world.tell(north, RejoinAsked("x" * 300))
    world.run_callback(north)
    request = north.requests[0].request
    assert isinstance(request, JoinGroupRequest)
    assert request.reason == "x" * 255  # L15, KIP-800
    said = decode_subscription(request.protocols[0].metadata)
    assert (said.topics, said.generation, said.owned) == (FLIGHTS, 1, frozenset())


def test_l3_the_first_join_asks_nothing_of_the_application_and_later_ones_do() -> None:
    world, north = alone(S.STABLE)
    assert [change for change, _ in north.words] == [Ownership.ASSIGNED]
    world.tell(north, RejoinAsked(""))
    world.settle()
    changes = [change for change, _ in north.words]
    assert changes == [Ownership.ASSIGNED, Ownership.REVOKED, Ownership.ASSIGNED]


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_l4_a_join_that_is_repeated_does_not_revoke_again(code: ErrorCode) -> None:
    world, north = alone(S.STABLE)
    world.tell(north, RejoinAsked(""))
    world.run_callback(north)
    request = north.requests[0].request
    assert isinstance(request, JoinGroupRequest)
    answer(world, north, join_refused(request, 9, code))
    world.advance(1_000)
    changes = [change for change, _ in north.words]
    assert changes == [Ownership.ASSIGNED, Ownership.REVOKED, Ownership.ASSIGNED]


def test_l5_an_assignment_for_another_subscription_is_not_taken() -> None:
    world = World()
    world.topics = {"flights": 2, "delays": 2}
    north = world.start("north")
    world.tell(north, Subscribed(FLIGHTS))
    while north.member.state is not S.COMPLETING_REBALANCE:
        if not world.work(north):
            world.expire()
    world.tell(north, Subscribed(frozenset({"delays"})))
    world.settle()
    assert not north.words
    world.advance(1_000)
    delays = frozenset(TopicPartition("delays", number) for number in range(2))
    assert north.member.assigned == delays
    assert north.words == [(Ownership.REVOKED, frozenset()), (Ownership.ASSIGNED, delays)]


class Asked(RangeAssignor):
    """An application's own assignor, which runs outside of the machine."""

    def __init__(self) -> None:
        self.says = b"one"

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return self.says + b" of " + ",".join(topics).encode()


def said(request: Message) -> bytes | None:
    assert isinstance(request, JoinGroupRequest)
    return decode_subscription(request.protocols[0].metadata).user_data


def test_l2_an_assignor_is_asked_once_for_an_attempt_to_join() -> None:
    """With KIP-394 a member joins twice; different bytes would restart the rebalance."""
    world, assignor = World(), Asked()
    north = world.start("north", assignor)
    world.topics = {"flights": 2}
    world.tell(north, Subscribed(frozenset({"flights"})))
    world.tell(north, CoordinatorKnown())
    assert not north.requests
    world.run_job(north)
    assert said(north.requests[0].request) == b"one of flights"
    assignor.says = b"two"
    first = north.requests.popleft()
    assert isinstance(first.request, JoinGroupRequest)
    refused = join_refused(first.request, 9, ErrorCode.MEMBER_ID_REQUIRED, "north-1")
    world.tell(north, ResponseArrived(first.token, refused))
    assert said(north.requests[0].request) == b"one of flights"
    assert not north.jobs


def test_l2_an_assignor_that_raises_as_it_is_asked_is_reported_and_asked_again() -> None:
    world = World()
    north = world.start("north", Asked())
    world.topics = {"flights": 2}
    world.tell(north, Subscribed(frozenset({"flights"})))
    world.tell(north, CoordinatorKnown())
    world.tell(north, JobDone(north.jobs.popleft().token, None, "boom"))
    assert north.member.state is S.UNJOINED
    assert [str(error) for error in north.raised] == ["boom"]
    world.advance(1_000)
    assert world.everybody_is_stable()


def test_l2_a_member_whose_assignor_cannot_be_asked_leaves_at_once() -> None:
    world = World()
    north = world.start("north", Asked())
    world.tell(north, Subscribed(frozenset({"flights"})))
    world.tell(north, CoordinatorKnown())
    job = north.jobs.popleft()
    world.tell(north, Closing())
    assert north.member.is_closed
    world.tell(north, JobDone(job.token, {"range": b""}))
    assert north.member.is_closed


def test_l8_an_assignor_that_raises_is_reported_and_tried_again() -> None:
    world, north = alone(S.COMPLETING_REBALANCE)
    job = north.jobs.popleft()
    world.tell(north, JobDone(job.token, None, "boom"))
    assert north.member.state is S.UNJOINED
    assert "boom" in str(north.raised[0])
    world.advance(1_000)
    assert world.everybody_is_stable()


def test_l7_c33_only_a_dynamic_member_says_good_bye() -> None:
    for instance in (None, "i"):
        world = World()
        north = world.start("north", instance=instance)
        world.tell(north, Subscribed(FLIGHTS))
        world.settle()
        world.tell(north, Closing())
        world.run_callback(north)
        leaves = [s for s in north.requests if isinstance(s.request, LeaveGroupRequest)]
        assert bool(leaves) is (instance is None)


def test_l7_closing_when_the_coordinator_is_gone_ends() -> None:
    world, north = alone(S.STABLE)
    world.tell(north, CoordinatorLost())
    world.tell(north, Closing())
    world.run_callback(north)
    assert north.member.state is S.CLOSED
    assert north.member.next_deadline() is None


def test_kip_580_each_wait_is_longer_up_to_a_limit() -> None:
    world = World()
    north = world.start("north")
    world.tell(north, Subscribed(FLIGHTS))
    waits = []
    for _ in range(6):
        assert north.looking_up
        north.looking_up = False
        world.tell(north, LookupFailed())
        due = north.member.next_deadline()
        assert due is not None
        waits.append(due - world.now)
        world.now = due
        world.expire()
    assert waits == [100, 200, 400, 800, 1_000, 1_000]
    world.tell(north, CoordinatorKnown())
    world.settle()
    assert north.member.state is S.STABLE


def test_a_group_that_may_not_be_read_is_fatal() -> None:
    world = World()
    north = world.start("north")
    world.tell(north, Subscribed(FLIGHTS))
    world.tell(north, LookupFailed(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert north.member.state is S.FATAL


def test_what_a_closed_or_unsubscribed_member_refuses() -> None:
    world, north = alone(S.STABLE)
    with pytest.raises(LocalProtocolError):
        world.tell(north, Subscribed(frozenset()))
    world.tell(north, Closing())
    world.settle()
    with pytest.raises(LocalProtocolError):
        world.tell(north, Subscribed(FLIGHTS))
    with pytest.raises(LocalProtocolError):
        north.member.commit_request({})


def test_a_report_that_nobody_waits_for_changes_nothing() -> None:
    world, north = alone(S.STABLE)
    before = north.member.session
    world.tell(north, ResponseArrived(999, HeartbeatResponse(error_code=25)))
    world.tell(north, JobDone(999, {}))
    assert north.member.session == before


def test_l7_a_member_that_closes_gives_back_an_id_that_it_is_about_to_hear_of() -> None:
    """KIP-394: otherwise the coordinator waits for the owner of the id and delays all members."""
    world, north = alone(REJOINED)
    request = north.requests[0].request
    assert isinstance(request, JoinGroupRequest)
    assert not request.member_id
    world.tell(north, Closing())
    assert not north.member.is_closed
    code = ErrorCode.MEMBER_ID_REQUIRED
    answer(world, north, join_refused(request, request.max_version, code, "north-1"))
    [good_bye] = [send.request for send in north.requests]
    assert isinstance(good_bye, LeaveGroupRequest)
    assert [each.member_id for each in good_bye.members] == ["north-1"]


def test_l7_it_does_not_wait_longer_for_its_id_than_the_coordinator_keeps_it() -> None:
    world, north = alone(REJOINED)
    world.tell(north, Closing())
    assert not north.member.is_closed
    world.now += north.member.config.session_timeout_ms
    world.expire()
    assert north.member.is_closed
