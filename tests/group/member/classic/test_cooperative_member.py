"""A cooperative member, step by step (KIP-429): its partitions, its callbacks, its requests."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode, RebalanceInProgressError
from kohort.group.assignors import Assignor, RangeAssignor
from kohort.group.coordinator.refusals import join_refused, sync_refused
from kohort.group.effects import AssignmentJob
from kohort.group.events import Ownership, OwnershipChanged
from kohort.group.member.classic.machine import ClassicMemberState
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CommitAnswered,
    CoordinatorLost,
    Polled,
    PollOverdue,
    RejoinAsked,
    ResponseArrived,
    Subscribed,
    Unsubscribed,
)
from kohort.group.subscription import Subscription, decode_subscription, encode_subscription
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire import consumer_protocol
from kohort.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartitions,
)
from kohort.wire.messages.membership import HeartbeatResponse, JoinGroupRequest, SyncGroupRequest
from tests.group.together.cooperative import Keep
from tests.group.together.world import GROUP, Application, World

FLIGHTS, BOTH = frozenset({"flights"}), frozenset({"flights", "delays"})
S = ClassicMemberState
ASSIGNED, REVOKED, LOST = Ownership.ASSIGNED, Ownership.REVOKED, Ownership.LOST


def flights(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("flights", number) for number in numbers)


def join(
    world: World, name: str, *assignors: Assignor, topics: frozenset[str] = FLIGHTS
) -> Application:
    application = world.start(name, *(assignors or (Keep(),)))
    world.tell(application, Subscribed(topics))
    return application


def alone(topics: frozenset[str] = FLIGHTS) -> tuple[World, Application]:
    """Return one cooperative member that owns all partitions."""
    world = World()
    world.topics = {"flights": 4, "delays": 2}
    north = join(world, "north", topics=topics)
    world.settle()
    north.words.clear()
    return world, north


def two() -> tuple[World, Application, Application]:
    """`north` owned everything, then `south` joined: stable, two partitions each."""
    world, north = alone()
    south = join(world, "south")
    world.advance(8_000)
    assert world.everybody_is_stable()
    return world, north, south


def state(application: Application) -> ClassicMemberState:
    return application.member.session.state


def until(world: World, application: Application, state: ClassicMemberState) -> None:
    """Let one member work, the other ones being faster, until it is in a state."""
    for _ in range(100):
        if application.member.state is state:
            return
        for other in world.applications.values():
            while other is not application and world.work(other):
                pass
        if not world.work(application) and not world.expire():
            world.now += 500
    raise AssertionError(application.member.state)


def said(application: Application) -> Subscription:
    request = application.requests[0].request
    assert isinstance(request, JoinGroupRequest)
    return decode_subscription(request.protocols[0].metadata)


def test_l2_l20_a_join_says_what_is_owned_and_since_when() -> None:
    """KIP-429 and KIP-792; this requires no callback (L3)."""
    world, north = alone()
    world.tell(north, RejoinAsked("because"))
    assert state(north) is S.PREPARING_REBALANCE
    assert not north.callbacks
    assert (said(north).owned, said(north).generation) == (flights(0, 1, 2, 3), 1)
    request = north.requests[0].request
    assert isinstance(request, JoinGroupRequest)
    assert request.reason == "because"  # L15


def test_l5_the_order_of_calls_when_partitions_move() -> None:
    world, north = alone()
    keep = north.member.assignors["keep"]
    assert isinstance(keep, Keep)
    keep.told.clear()
    join(world, "south")
    until(world, north, S.ASSIGNING)
    assert north.callbacks[0].change is REVOKED
    moving = north.callbacks[0].partitions
    assert len(moving) == 2
    assert not keep.told
    world.run_callback(north)
    assert state(north) is S.ASSIGNING
    assert north.callbacks[0].change is ASSIGNED
    assert north.callbacks[0].partitions == frozenset()  # always called, even without partitions
    world.run_callback(north)
    kept = flights(0, 1, 2, 3) - moving
    ((assignment, metadata),) = keep.told
    assert assignment.partitions == kept
    assert (metadata.group_id, metadata.generation_id) == ("delays", 2)
    assert metadata.member_id == north.member.member_id
    # revoked partitions can be assigned in another rebalance
    assert state(north) is S.PREPARING_REBALANCE
    assert (said(north).owned, said(north).generation) == (kept, 2)
    request = north.requests[0].request
    assert isinstance(request, JoinGroupRequest)
    assert request.reason == "need to revoke partitions and re-join"


def test_l24_partitions_move_in_two_rounds_and_only_those_that_must() -> None:
    world, north = alone()
    south = join(world, "south")
    world.advance(8_000)
    given_up = north.words[0][1]
    assert north.words == [(REVOKED, given_up), (ASSIGNED, frozenset()), (ASSIGNED, frozenset())]
    assert south.words == [(ASSIGNED, frozenset()), (ASSIGNED, given_up)]
    assert len(given_up) == 2
    assert north.member.generation_id == south.member.generation_id == 3


def test_kept_partitions_are_read_on_during_a_rebalance() -> None:
    world, north = alone()
    join(world, "south")
    seen = []
    while not world.everybody_is_stable() or north.member.generation_id < 3:
        seen.append((north.member.state, north.member.fetchable))
        if not any(world.work(each) for each in world.applications.values()):
            world.now += 500
            world.expire()
    kept = north.member.assigned
    assert len(kept) == 2
    assert all(kept <= fetchable for _, fetchable in seen)
    assert {S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE, S.ASSIGNING} <= {s for s, _ in seen}
    # moving partitions are not read while the application revokes them
    assert (S.ASSIGNING, kept) in seen


def test_l3_what_leaves_the_subscription_is_revoked_before_the_join() -> None:
    """They are not lost, as the text of KIP-429 says: the application still owns them."""
    world, north = alone(BOTH)
    world.tell(north, Subscribed(FLIGHTS))
    assert state(north) is S.REVOKING
    gone = frozenset(TopicPartition("delays", number) for number in range(2))
    assert (north.callbacks[0].change, north.callbacks[0].partitions) == (REVOKED, gone)
    assert north.member.fetchable == flights(0, 1, 2, 3)
    world.run_callback(north)
    assert said(north).owned == flights(0, 1, 2, 3)
    world.settle()
    assert north.words == [(REVOKED, gone), (ASSIGNED, frozenset())]


def test_l3_a_wider_subscription_revokes_nothing() -> None:
    world, north = alone()
    world.tell(north, Subscribed(BOTH))
    world.settle()
    added = frozenset(TopicPartition("delays", number) for number in range(2))
    assert north.words == [(ASSIGNED, added)]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("by_commit", [False, True])
def test_l3_l10_who_was_removed_loses_all_and_owns_nothing_when_it_joins(
    code: ErrorCode, by_commit: bool
) -> None:
    """KIP-792: with ILLEGAL_GENERATION the member id stays (KAFKA-13419), the claims do not."""
    world, north = alone()
    member_id = north.member.member_id
    if by_commit:
        world.tell(north, CommitAnswered(north.member.identity, code))
    else:
        world.now += 3_000
        world.expire()
        send = north.requests.popleft()
        world.tell(north, ResponseArrived(send.token, HeartbeatResponse(error_code=code)))
    assert (north.callbacks[0].change, north.callbacks[0].partitions) == (
        LOST,
        flights(0, 1, 2, 3),
    )
    assert north.member.fetchable == frozenset()
    world.run_callback(north)
    request = north.requests[0].request
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == (member_id if code is ErrorCode.ILLEGAL_GENERATION else "")
    assert (said(north).owned, said(north).generation) == (frozenset(), -1)


def test_l10_removed_while_it_joins_loses_what_it_kept() -> None:
    world, north = alone()
    world.tell(north, RejoinAsked(""))
    send = north.requests.popleft()
    assert isinstance(send.request, JoinGroupRequest)
    refused = join_refused(send.request, 9, ErrorCode.UNKNOWN_MEMBER_ID)
    world.tell(north, ResponseArrived(send.token, refused))
    assert north.callbacks[0].change is LOST
    world.run_callback(north)
    assert said(north).owned == frozenset()


@pytest.mark.parametrize("by_heartbeat", [False, True])
def test_l10_removed_between_the_two_phases_loses_what_it_kept(by_heartbeat: bool) -> None:
    world, north, _south = two()
    kept = north.member.assigned
    world.tell(north, RejoinAsked(""))
    until(world, north, S.COMPLETING_REBALANCE)
    if by_heartbeat:
        code = ErrorCode.ILLEGAL_GENERATION
        world.tell(north, CommitAnswered(north.member.identity, code))
    else:
        while not north.requests:
            world.run_job(north)
        send = north.requests.popleft()
        assert isinstance(send.request, SyncGroupRequest)
        refused = sync_refused(ErrorCode.UNKNOWN_MEMBER_ID)
        world.tell(north, ResponseArrived(send.token, refused))
    assert (north.callbacks[0].change, north.callbacks[0].partitions) == (LOST, kept)


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_l4_l10_a_join_that_is_repeated_keeps_what_is_owned(code: ErrorCode) -> None:
    world, north = alone()
    world.tell(north, RejoinAsked(""))
    send = north.requests.popleft()
    assert isinstance(send.request, JoinGroupRequest)
    world.tell(north, ResponseArrived(send.token, join_refused(send.request, 9, code)))
    assert north.member.fetchable == flights(0, 1, 2, 3)
    world.advance(1_000)
    assert north.words == [(ASSIGNED, frozenset())]


def test_l4_a_listener_that_failed_is_not_asked_again() -> None:
    world, north = alone(BOTH)
    world.tell(north, Subscribed(FLIGHTS))
    callback = north.callbacks.popleft()
    world.tell(north, CallbackDone(callback.token, "boom"))
    assert said(north).owned == flights(0, 1, 2, 3)
    world.tell(north, CoordinatorLost())
    north.requests.clear()
    north.words.clear()
    north.believes -= callback.partitions
    world.advance(1_000)
    assert north.words == [(ASSIGNED, frozenset())]


def test_l6_the_assignment_stands_though_the_listener_failed() -> None:
    world, north = alone()
    join(world, "south")
    until(world, north, S.ASSIGNING)
    world.tell(north, CallbackDone(north.callbacks.popleft().token, "boom"))
    assert north.callbacks[0].change is ASSIGNED
    world.tell(north, CallbackDone(north.callbacks.popleft().token, "bang"))
    assert len(north.member.assigned) == 2


def test_l5_an_assignment_that_does_not_match_the_subscription_is_not_taken() -> None:
    world, north = alone(BOTH)
    delays = frozenset(each for each in north.member.assigned if each.topic == "delays")
    world.tell(north, RejoinAsked(""))
    until(world, north, S.COMPLETING_REBALANCE)
    world.tell(north, Subscribed(FLIGHTS))
    world.settle()
    assert not north.words
    world.advance(1_000)
    assert north.words == [(REVOKED, delays), (ASSIGNED, frozenset())]
    assert north.member.assigned == flights(0, 1, 2, 3)


def test_removed_while_partitions_are_given_up_they_count_as_lost() -> None:
    """L7: partitions that were never assigned are not reported, and no call is repeated."""
    world, north = alone()
    join(world, "south")
    until(world, north, S.ASSIGNING)
    moving = north.callbacks[0].partitions
    code = ErrorCode.UNKNOWN_MEMBER_ID
    world.tell(north, CommitAnswered(north.member.identity, code))
    world.observed.clear()
    world.run_callback(north)
    (fact,) = [each for each in world.observed if isinstance(each, OwnershipChanged)]
    assert (fact.change, fact.partitions) == (LOST, moving)
    rest = flights(0, 1, 2, 3) - moving
    assert (north.callbacks[0].change, north.callbacks[0].partitions) == (LOST, rest)


def test_l3_removed_while_topics_are_given_up_the_rest_is_lost_before_the_join() -> None:
    world, north = alone(BOTH)
    world.tell(north, Subscribed(FLIGHTS))
    assert north.callbacks[0].change is REVOKED
    world.tell(north, CommitAnswered(north.member.identity, ErrorCode.UNKNOWN_MEMBER_ID))
    world.run_callback(north)
    assert (north.callbacks[0].change, north.callbacks[0].partitions) == (
        LOST,
        flights(0, 1, 2, 3),
    )
    world.run_callback(north)
    assert said(north).owned == frozenset()


def test_l7_an_application_that_does_not_poll_has_lost_what_it_was_asked_to_give_up() -> None:
    world, north = alone()
    join(world, "south")
    north.deferring = True
    until(world, north, S.ASSIGNING)
    world.now += 60_000
    while world.expire():
        pass
    assert state(north) is S.STALE
    world.observed.clear()
    world.run_callback(north)
    world.tell(north, Polled())
    world.run_callback(north)
    changes = [each.change for each in world.observed if isinstance(each, OwnershipChanged)]
    assert changes == [LOST, LOST]
    assert north.believes == set()


@pytest.mark.parametrize("stays_away", [False, True])
def test_l24_a_static_member_that_lost_its_place_still_owes_the_second_round(
    stays_away: bool,
) -> None:
    """KIP-345, KIP-429: it returns quietly, and its revoked partitions would stay without owner."""
    world = World()
    world.topics = {"flights": 4}
    north, south = (world.start(name, Keep(), instance=name) for name in ("north", "south"))
    world.tell(north, Subscribed(FLIGHTS))
    world.settle()
    world.tell(south, Subscribed(FLIGHTS))
    north.deferring = True
    until(world, north, S.ASSIGNING)
    world.tell(north, CommitAnswered(north.member.identity, ErrorCode.UNKNOWN_MEMBER_ID))
    if stays_away:
        world.tell(north, PollOverdue())  # type: ignore[arg-type]  # before the others notice
        assert state(north) is S.STALE
    north.deferring = False
    world.tell(north, Polled())
    world.advance(20_000)
    assert world.everybody_is_stable()
    assert sorted(len(each.member.assigned) for each in (north, south)) == [2, 2]


@pytest.mark.parametrize("event", [Closing(), Unsubscribed()])
def test_l7_leaving_in_the_middle_of_a_rebalance_loses_otherwise_it_revokes(
    event: Closing | Unsubscribed,
) -> None:
    world, north = alone()
    world.tell(north, event)
    assert north.callbacks[0].change is REVOKED
    world, north = alone()
    world.tell(north, RejoinAsked(""))
    world.tell(north, event)
    assert north.callbacks[0].change is LOST
    assert north.callbacks[0].partitions == flights(0, 1, 2, 3)


def test_l7_leaving_while_partitions_are_given_up_gives_up_the_rest() -> None:
    world, north = alone()
    join(world, "south")
    until(world, north, S.ASSIGNING)
    world.tell(north, Closing())
    world.settle()
    assert [change for change, _ in north.words] == [REVOKED, REVOKED]
    assert north.believes == set()
    assert state(north) is S.CLOSED


def test_l11_commits_wait_for_the_end_of_a_rebalance() -> None:
    world, north = alone()
    sent = north.member.identity
    world.tell(north, RejoinAsked(""))
    until(world, north, S.COMPLETING_REBALANCE)
    with pytest.raises(RebalanceInProgressError):
        north.member.commit_request({})
    # a commit on its way has not failed: the partitions are still owned
    verdict = north.member.commit_verdict(sent, ErrorCode.REBALANCE_IN_PROGRESS)
    assert verdict is CommitVerdict.REBALANCE_IN_PROGRESS
    verdict = north.member.commit_verdict(sent, ErrorCode.ILLEGAL_GENERATION)
    assert verdict is CommitVerdict.REBALANCE_IN_PROGRESS
    world.tell(north, CommitAnswered(sent, ErrorCode.ILLEGAL_GENERATION))
    world.settle()
    assert state(north) is S.STABLE
    verdict = north.member.commit_verdict(CommitIdentity("x", 1), ErrorCode.ILLEGAL_GENERATION)
    assert verdict is CommitVerdict.COMMIT_FAILED
    north.member.commit_request({})


def test_l11_while_the_group_waits_for_all_to_join_what_is_kept_is_committed() -> None:
    world, north, _ = two()
    sent = north.member.identity
    world.tell(north, RejoinAsked(""))  # and the other member does not rejoin
    world.commit(north)
    for _ in range(10):
        world.work(north)
    assert state(north) is S.PREPARING_REBALANCE
    assert north.verdicts == [CommitVerdict.DONE]
    # a response that has overtaken the one to JoinGroup
    verdict = north.member.commit_verdict(sent, ErrorCode.ILLEGAL_GENERATION)
    assert verdict is CommitVerdict.REBALANCE_IN_PROGRESS


def test_l11_what_moves_can_be_committed_when_it_is_given_up() -> None:
    world, north = alone()
    join(world, "south")
    until(world, north, S.ASSIGNING)
    moving = north.callbacks[0].partitions
    world.commit(north)
    assert north.commits
    while north.commits:
        world.work(north)
    assert state(north) is S.ASSIGNING  # neither rejected nor the start of another rebalance
    stored = world.shard.log.offsets_of(GROUP)
    assert {stored[each].offset for each in moving} == {7}


def test_l1_with_an_eager_assignor_beside_it_everything_is_given_up() -> None:
    world = World()
    north = join(world, "north", Keep(), RangeAssignor())
    world.settle()
    owned = north.member.assigned
    world.tell(north, RejoinAsked(""))
    assert (north.callbacks[0].change, north.callbacks[0].partitions) == (REVOKED, owned)


def test_l9_heartbeats_go_out_from_the_second_phase_on() -> None:
    world, north = alone()
    world.tell(north, RejoinAsked(""))
    north.requests.clear()  # JoinGroup is parked at the coordinator
    world.now += 20_000
    while world.expire():
        pass
    assert not north.requests
    world, north = alone()
    world.tell(north, RejoinAsked(""))
    until(world, north, S.COMPLETING_REBALANCE)
    world.now += 3_000
    world.expire()
    assert [type(send.request).__name__ for send in north.requests] == ["HeartbeatRequest"]


def test_l25_the_coordinator_does_not_look_at_the_generation_of_a_subscription() -> None:
    """KIP-792 rejected that; the leader checks the generation (L21)."""
    world, north = alone()
    world.tell(north, RejoinAsked(""))
    send = north.requests[0]
    assert isinstance(send.request, JoinGroupRequest)
    stale = Subscription(topics=FLIGHTS, owned=flights(0, 1), generation=0)
    protocol = replace(send.request.protocols[0], metadata=encode_subscription(stale))
    north.requests[0] = replace(send, request=replace(send.request, protocols=(protocol,)))
    until(world, north, S.COMPLETING_REBALANCE)
    assert north.member.generation_id == 2
    job = north.jobs[0]
    assert isinstance(job, AssignmentJob)
    (said,) = job.subscriptions.values()
    assert (said.owned, said.generation) == (flights(0, 1), 0)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_l20_each_version_of_a_subscription_says_more_than_the_one_before(version: int) -> None:
    message = ConsumerProtocolSubscription(
        topics=("flights",),
        user_data=b"u",
        owned_partitions=(ConsumerProtocolTopicPartitions(topic="flights", partitions=(1,)),),
        generation_id=7,
        rack_id="r",
    )
    data = consumer_protocol.encode_subscription(message, version)
    # a later version is decoded as far as it is known
    for each in (data, b"\x00\x63" + data[2:] + b"more") if version == 3 else (data,):
        assert decode_subscription(each) == Subscription(
            topics=FLIGHTS,
            user_data=b"u",
            owned=flights(1) if version >= 1 else frozenset(),
            generation=7 if version >= 2 else -1,
            rack_id="r" if version >= 3 else None,
        )
