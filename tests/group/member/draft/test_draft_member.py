"""The consumer of the draft protocol, state by state, and in a group (docs/internals/draft.md)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kohort.errors import ErrorCode, KafkaError, LocalProtocolError
from kohort.group.events import Cause, MemberLeft, Ownership
from kohort.group.member.commits import CommitVerdict
from kohort.group.member.draft.machine import DraftMemberState
from kohort.group.member.draft.table import DRAFT_MEMBER
from kohort.group.member.events import (
    Closing,
    CoordinatorKnown,
    CoordinatorLost,
    JobDone,
    LookupFailed,
    Polled,
    RejoinAsked,
    RequestFailed,
    ResponseArrived,
    Subscribed,
    Unsubscribed,
)
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.draft import (
    DraftHeartbeatRequest,
    DraftHeartbeatResponse,
    DraftJoinGroupRequest,
    DraftJoinGroupResponse,
    TopicAndPartition,
)
from tests.group.together.draft_world import FLIGHTS, GROUP, Application, DraftWorld, partitions

DOWN, CLOSED = DraftMemberState.DOWN, DraftMemberState.CLOSED
DISCOVER = DraftMemberState.DISCOVER_COORDINATOR
PART = DraftMemberState.PART_OF_GROUP
REDISCOVER = DraftMemberState.REDISCOVER_COORDINATOR
STOPPED = DraftMemberState.STOPPED_CONSUMPTION
FATAL = DraftMemberState.FATAL


def answer_heartbeat(world: DraftWorld, application: Application, code: ErrorCode) -> None:
    """Answer the consumer's next heartbeat with this code."""
    while not application.requests:
        world.now += 100
        world.expire()
    (send,) = application.requests
    application.requests.clear()
    assert isinstance(send.request, DraftHeartbeatRequest)
    world.tell(application, ResponseArrived(send.token, DraftHeartbeatResponse(error_code=code)))


def joining(world: DraftWorld, name: str = "north") -> Application:
    """Return a consumer with a pending JoinGroup."""
    application = world.start(name)
    world.tell(application, Subscribed(FLIGHTS))
    world.work(application)
    assert isinstance(application.requests[0].request, DraftJoinGroupRequest)
    return application


def answer_join(world: DraftWorld, application: Application, **fields: object) -> None:
    send = application.requests.popleft()
    given: dict[str, object] = {"error_code": 0, "group_id": GROUP} | fields
    response = DraftJoinGroupResponse(**given)  # type: ignore[arg-type]  # as the caller says
    world.tell(application, ResponseArrived(send.token, response))


# ------------------------------------------------------------------------------ start up and join


def test_d21_a_consumer_starts_up_finds_its_coordinator_and_joins() -> None:
    world = DraftWorld()
    application = world.start("north")
    assert application.member.state is DOWN
    world.tell(application, Subscribed(FLIGHTS))
    assert application.member.state is DISCOVER
    assert application.looking_up
    assert not application.requests
    world.tell(application, CoordinatorKnown())
    (send,) = application.requests
    assert send.request == DraftJoinGroupRequest(
        group_id=GROUP,
        consumer_host="north",
        session_timeout_ms=10_000,
        heartbeat_frequency=3,
        topics=("flights",),
        consumer_id="",
    )


def test_d22_a_join_response_without_error_makes_it_part_of_the_group() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    assert north.member.state is PART
    assert north.member.member_id == "delays-north-1"
    assert north.member.generation_id == 1
    assert north.member.fetchable == north.member.assigned == partitions(*range(8))
    assert north.words == [(Ownership.ASSIGNED, partitions(*range(8)))]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"consumer_id": "c", "group_generation_id": -1},
        {
            "consumer_id": "c",
            "group_generation_id": 1,
            "partitions_to_own": (TopicAndPartition(topic="other", partition=0),),
        },
    ],
    ids=["no id", "no generation", "a topic that nobody asked for"],
)
def test_d22_an_answer_that_makes_no_sense_is_fatal(wrong: dict[str, object]) -> None:
    world = DraftWorld()
    application = joining(world)
    answer_join(world, application, **wrong)
    assert application.member.state is FATAL
    assert [type(error) for error in application.raised] == [KafkaError]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.INVALID_SESSION_TIMEOUT, 9_999, 25],
)
def test_an_error_that_no_wait_would_cure_is_fatal(code: int) -> None:
    world = DraftWorld()
    application = joining(world)
    answer_join(world, application, error_code=code)
    assert application.member.state is FATAL
    (error,) = application.raised
    assert isinstance(error, KafkaError)
    assert error.code == code
    world.tell(application, Unsubscribed())
    assert application.member.state is DOWN


@pytest.mark.parametrize("code", [14, 15, 16, 27, 7], ids=lambda code: ErrorCode(code).name)
def test_d1_a_rejected_join_is_sent_again_after_a_wait(code: int) -> None:
    world = DraftWorld()
    application = joining(world)
    answer_join(world, application, error_code=code)
    world.settle()
    assert application.member.state is DISCOVER
    assert not application.requests
    world.advance(500)
    assert application.member.state is PART


def test_a_join_that_gets_no_answer_is_sent_again_after_a_wait() -> None:
    world = DraftWorld()
    application = joining(world)
    send = application.requests.popleft()
    world.tell(application, RequestFailed(send.token, "connection refused"))
    assert not application.requests
    world.advance(500)
    assert application.member.state is PART


@pytest.mark.parametrize("code", [None, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_lookup_that_fails_is_tried_again_after_a_wait(code: ErrorCode | None) -> None:
    world = DraftWorld()
    application = world.start("north")
    world.tell(application, Subscribed(FLIGHTS))
    for _ in range(3):
        application.looking_up = False
        world.tell(application, LookupFailed(code))
        assert not application.looking_up
        world.now += 2_000
        world.expire()
        assert application.looking_up


def test_a_lookup_that_is_refused_is_fatal() -> None:
    world = DraftWorld()
    application = world.start("north")
    world.tell(application, Subscribed(FLIGHTS))
    world.tell(application, LookupFailed(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert application.member.state is FATAL


# --------------------------------------------------------------------------- re-discover, and stop


def test_d23_a_consumer_that_lost_its_coordinator_reads_on() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    north.reachable = False
    world.drop_connection(north)
    assert north.member.state is REDISCOVER
    assert north.member.fetchable == partitions(*range(8))
    world.advance(9_000)
    assert north.member.state is REDISCOVER
    north.reachable = True
    world.advance(500)
    assert north.member.state is PART
    assert north.member.generation_id == 1
    assert len(north.words) == 1


def test_d23_silence_of_the_coordinator_is_as_good_as_a_lost_connection() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    north.requests.clear()
    north.reachable = False
    world.advance(11_000)
    assert north.member.state is REDISCOVER
    assert north.looking_up
    assert north.member.fetchable


@pytest.mark.parametrize("code", [14, 15, 16], ids=lambda code: ErrorCode(code).name)
def test_d1_d23_a_rejected_ping_means_look_again_and_read_on(code: int) -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    answer_heartbeat(world, north, ErrorCode(code))
    assert north.member.state is REDISCOVER
    assert not north.looking_up  # it waits first
    assert north.member.fetchable
    world.advance(1_000)
    assert north.member.state is PART
    assert north.member.generation_id == 1


def test_d3_a_consumer_that_finds_the_new_coordinator_too_late_is_a_new_one() -> None:
    world = DraftWorld()
    north, south = world.joined("north", "south")
    south.reachable = False
    owned = south.member.assigned
    world.drop_connection(south)
    world.reload()
    world.advance(14_000)
    assert south.member.state is REDISCOVER
    assert south.member.fetchable == owned  # it does not know yet
    assert north.member.assigned == partitions(*range(8))
    south.reachable = True
    world.advance(4_000)
    assert (Ownership.LOST, owned) in south.words
    assert south.member.member_id == "delays-south-3"
    assert len(south.member.assigned) == len(north.member.assigned) == 4


def test_d4_d24_illegal_generation_stops_consumption_until_it_has_joined_again() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    south = world.start("south")
    world.tell(south, Subscribed(FLIGHTS))
    north.deferring = True
    world.advance(3_500)
    assert north.member.state is STOPPED
    assert north.member.fetchable == frozenset()
    assert north.member.assigned == partitions(*range(8))  # until the application revoked them
    assert south.member.state is DISCOVER
    north.deferring = False
    world.advance(500)
    assert world.everybody_is_part()
    assert north.words[1] == (Ownership.REVOKED, partitions(*range(8)))
    assert north.member.member_id == "delays-north-1"  # D8
    assert north.member.generation_id == south.member.generation_id == 2


def test_d13_an_application_that_takes_too_long_to_stop_comes_back_as_a_new_consumer() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    north.deferring = True
    (south,) = [world.start("south")]
    world.tell(south, Subscribed(FLIGHTS))
    world.advance(12_000)
    assert south.member.assigned == partitions(*range(8))
    north.deferring = False
    world.advance(4_000)
    assert world.everybody_is_part()
    assert north.member.member_id == "delays-north-3"
    left = [event for event in world.observed if isinstance(event, MemberLeft)]
    assert [(event.member, event.cause) for event in left] == [
        ("delays-north-1", Cause.JOIN_TIMED_OUT)
    ]


def test_d6_d24_positions_of_the_last_moment_are_refused_while_the_group_rebalances() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    north.deferring = True
    south = world.start("south")
    world.tell(south, Subscribed(FLIGHTS))
    world.advance(3_500)
    assert north.member.state is STOPPED
    world.commit(north)
    world.settle()
    assert north.verdicts == [CommitVerdict.COMMIT_FAILED]
    assert not world.shard.log.offsets_of(GROUP)


def test_d24_a_consumer_that_stops_of_its_own_accord_may_commit_first() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    north.deferring = True
    world.tell(north, Subscribed(frozenset({"flights", "delays"})))
    assert north.member.state is STOPPED
    world.commit(north)
    world.settle()
    assert north.verdicts == [CommitVerdict.DONE]
    assert len(world.shard.log.offsets_of(GROUP)) == 8


def test_d6_a_commit_that_is_refused_is_the_same_signal_as_a_heartbeat() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    south = world.start("south")
    world.tell(south, Subscribed(FLIGHTS))
    while world.work(south):
        pass
    assert north.member.state is PART
    world.commit(north)
    world.work(north)
    world.work(north)
    assert north.member.state is STOPPED


def test_only_who_is_part_of_a_group_can_commit() -> None:
    world = DraftWorld()
    application = world.start("north")
    with pytest.raises(LocalProtocolError):
        application.member.commit_request({TopicPartition("flights", 0): OffsetAndMetadata(1)})


# ------------------------------------------------------------------------------------- heartbeats


def test_d25_the_heartbeat_frequency_is_how_often_it_beats_in_one_session() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    north.reachable = False
    before, beats = world.now, []
    while world.now < before + 10_000:
        world.now += 1
        world.expire()
        for send in north.requests:
            beats.append(world.now)
            answer = DraftHeartbeatResponse(error_code=0)
            world.tell(north, ResponseArrived(send.token, answer))
        north.requests.clear()
    assert len(beats) == 3
    assert {later - earlier for earlier, later in pairwise(beats)} == {3_333}


def test_d25_an_application_that_does_not_poll_makes_its_consumer_silent() -> None:
    world = DraftWorld()
    north, south = world.joined("north", "south")
    owned = south.member.assigned
    for _ in range(160):
        world.tell(north, Polled())
        world.advance(500, poll=False)
    assert north.member.assigned == partitions(*range(8))
    assert south.member.state is PART  # it does not know
    world.advance(8_000)
    assert (Ownership.LOST, owned) in south.words
    assert len(south.member.assigned) == len(north.member.assigned) == 4


def test_an_error_of_a_heartbeat_that_no_wait_would_cure_is_fatal() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    answer_heartbeat(world, north, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert north.member.state is FATAL
    world.settle()
    assert north.words[-1] == (Ownership.LOST, partitions(*range(8)))


# ---------------------------------------------------------------------------------------- leaving


def test_d20_a_consumer_that_closes_falls_silent_and_others_take_over() -> None:
    world = DraftWorld()
    north, south = world.joined("north", "south")
    owned = south.member.assigned
    world.tell(south, Closing())
    world.settle()
    assert south.member.state is CLOSED
    assert south.words[-1] == (Ownership.REVOKED, owned)
    world.advance(14_000)
    assert north.member.assigned == partitions(*range(8))


def test_d8_who_unsubscribes_and_comes_back_is_still_the_same_consumer() -> None:
    world = DraftWorld()
    north, south = world.joined("north", "south")
    owned = south.member.assigned
    world.tell(south, Unsubscribed())
    world.settle()
    assert south.member.state is DOWN
    world.tell(south, Subscribed(FLIGHTS))
    world.settle()
    assert south.member.state is PART
    assert south.member.member_id == "delays-south-2"
    assert south.member.assigned == owned
    assert north.member.generation_id == 2


def test_who_comes_back_while_it_leaves_joins_when_it_has_left() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    north.deferring = True
    world.tell(north, Unsubscribed())
    world.tell(north, Subscribed(FLIGHTS))
    north.deferring = False
    world.settle()
    assert north.member.state is PART


def test_closing_is_for_good() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    world.tell(north, Unsubscribed())
    world.tell(north, Closing())
    world.tell(north, Unsubscribed())
    with pytest.raises(LocalProtocolError):
        world.tell(north, Subscribed(FLIGHTS))
    world.settle()
    assert north.member.state is CLOSED
    with pytest.raises(LocalProtocolError):
        world.tell(north, Subscribed(FLIGHTS))


def test_closing_before_anything_has_begun() -> None:
    world = DraftWorld()
    application = world.start("north")
    world.tell(application, Closing())
    assert application.member.state is CLOSED


def test_a_subscription_that_changes_while_its_join_is_on_its_way() -> None:
    world = DraftWorld()
    world.topics["delays"] = 1
    world.tell_topics()
    north = joining(world)
    world.tell(north, Subscribed(frozenset({"delays"})))
    world.advance(4_000)
    assert north.member.assigned == {TopicPartition("delays", 0)}


def test_what_the_design_does_not_know_does_nothing() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    before = north.member.session
    world.tell(north, RejoinAsked("because"))
    world.tell(north, JobDone(7, None))
    world.tell(north, ResponseArrived(999, DraftHeartbeatResponse(error_code=22)))
    assert north.member.session == before
    assert north.member.group_topics == frozenset()


def test_a_coordinator_that_comes_and_goes_means_nothing_to_who_is_down() -> None:
    world = DraftWorld()
    application = world.start("north")
    world.tell(application, CoordinatorKnown())
    world.tell(application, CoordinatorLost())
    assert application.member.state is DOWN
    assert not application.looking_up


def test_every_state_can_be_reached() -> None:
    reached = {DOWN}
    for _ in DraftMemberState:
        reached |= {to for line in DRAFT_MEMBER.rows for to in line.to if reached & {*line.states}}
    assert reached == set(DraftMemberState)
