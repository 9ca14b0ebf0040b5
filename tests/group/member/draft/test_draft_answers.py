"""A draft consumer and responses that come late or at a bad moment (docs/internals/draft.md)."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.group.events import Ownership
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.draft.machine import DraftMemberState
from kohort.group.member.events import (
    Closing,
    CommitAnswered,
    LookupFailed,
    Polled,
    RequestFailed,
    Subscribed,
    Unsubscribed,
)
from tests.group.coordinator.draft.draft_dialogue import DraftDialogue
from tests.group.member.draft.test_draft_member import answer_heartbeat, answer_join
from tests.group.together.draft_world import FLIGHTS, Application, DraftWorld, partitions

PART = DraftMemberState.PART_OF_GROUP
REDISCOVER = DraftMemberState.REDISCOVER_COORDINATOR
STOPPED = DraftMemberState.STOPPED_CONSUMPTION
FATAL = DraftMemberState.FATAL
UNKNOWN, ILLEGAL = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
ALL = partitions(*range(8))


def stopped(world: DraftWorld) -> Application:
    """Return a consumer whose application is slow to revoke its partitions."""
    (north,) = world.joined("north")
    north.deferring = True
    world.tell(north, Subscribed(frozenset({"flights", "delays"})))
    assert north.member.state is STOPPED
    return north


def commit_answered(world: DraftWorld, application: Application, code: ErrorCode) -> None:
    world.tell(application, CommitAnswered(application.member.identity, code))


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.NONE, PART),
        (ILLEGAL, STOPPED),
        (UNKNOWN, STOPPED),
        (ErrorCode.NOT_COORDINATOR, REDISCOVER),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, REDISCOVER),
        (ErrorCode.REQUEST_TIMED_OUT, PART),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, PART),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, PART),
    ],
    ids=lambda value: value.name,
)
def test_d6_d7_what_a_commit_says_of_the_membership(
    code: ErrorCode, state: DraftMemberState
) -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    commit_answered(world, north, code)
    assert north.member.state is state
    assert bool(north.member.member_id) == (code is not UNKNOWN)
    world.advance(4_000)
    assert north.member.assigned == ALL or code is UNKNOWN


def test_d23_commits_that_go_astray_do_not_put_the_search_off() -> None:
    """Retried commits must not keep the consumer from finding the coordinator."""
    world = DraftWorld()
    (north,) = world.joined("north")
    commit_answered(world, north, ErrorCode.NOT_COORDINATOR)
    due = north.member.next_deadline()
    for _ in range(3):
        commit_answered(world, north, ErrorCode.NOT_COORDINATOR)
    assert north.member.next_deadline() == due


@pytest.mark.parametrize("code", [ErrorCode.NONE, ILLEGAL, ErrorCode.REQUEST_TIMED_OUT])
@pytest.mark.parametrize("by_commit", [False, True])
def test_d24_while_it_stops_it_has_heard_the_signal_already(
    code: ErrorCode, by_commit: bool
) -> None:
    world = DraftWorld()
    north = stopped(world)
    answered = commit_answered if by_commit else answer_heartbeat
    answered(world, north, code)
    assert north.member.state is STOPPED
    assert north.member.member_id
    assert len(north.callbacks) == 1


@pytest.mark.parametrize("by_commit", [False, True])
def test_d3_given_up_while_it_stops_it_joins_as_new(by_commit: bool) -> None:
    world = DraftWorld()
    north = stopped(world)
    answered = commit_answered if by_commit else answer_heartbeat
    answered(world, north, UNKNOWN)
    assert north.member.generation_id == -1
    north.deferring = False
    world.advance(15_000)
    assert north.member.member_id == "delays-north-2"


def test_d1_the_coordinator_moves_while_it_stops() -> None:
    world = DraftWorld()
    north = stopped(world)
    answer_heartbeat(world, north, ErrorCode.NOT_COORDINATOR)
    assert not north.member.session.coordinator_known
    north.deferring = False
    world.advance(2_000)
    assert north.member.state is PART
    commit_answered(world, north, ErrorCode.NONE)
    assert north.member.state is PART


def test_d23_silence_while_it_stops_means_look_again() -> None:
    world = DraftWorld()
    north = stopped(world)
    north.reachable = False
    world.advance(11_000)
    assert north.looking_up
    north.reachable, north.deferring = True, False
    world.advance(15_000)
    assert north.member.state is PART


def test_an_answer_to_who_it_was_before_means_nothing() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    world.tell(north, CommitAnswered(CommitIdentity(north.member.member_id, 0), UNKNOWN))
    assert north.member.state is PART
    assert north.member.member_id


def test_d11_an_id_that_is_refused_is_dropped() -> None:
    world = DraftWorld()
    north = stopped(world)
    north.deferring = False
    world.work(north)
    answer_join(world, north, error_code=UNKNOWN)
    (send,) = north.requests
    assert send.request.consumer_id == ""  # type: ignore[attr-defined]  # a JoinGroup


def test_what_it_was_given_while_it_failed_is_lost() -> None:
    world = DraftWorld()
    north = world.start("north")
    north.deferring = True
    world.tell(north, Subscribed(FLIGHTS))
    world.settle()
    answer_heartbeat(world, north, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert north.member.state is FATAL
    north.deferring = False
    world.settle()
    assert north.words == [(Ownership.ASSIGNED, ALL), (Ownership.LOST, ALL)]


def test_who_changes_its_mind_twice_while_it_leaves_is_down() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    north.deferring = True
    for event in (Unsubscribed(), Subscribed(FLIGHTS), Unsubscribed()):
        world.tell(north, event)
    north.deferring = False
    world.settle()
    assert north.member.state is DraftMemberState.DOWN


def test_a_lookup_that_fails_while_it_leaves_is_forgotten() -> None:
    world = DraftWorld()
    (north,) = world.joined("north")
    north.deferring = True
    north.reachable = False
    world.drop_connection(north)
    world.tell(north, Closing())
    world.tell(north, LookupFailed())
    assert not north.member.session.looking_up
    north.deferring = False
    world.settle()
    assert north.member.is_closed


# ------------------------------------------------------------------------------- the coordinator


def test_d4_a_ping_of_another_generation_is_called_back_in_steady_too() -> None:
    d = DraftDialogue()
    first, _ = d.steady("a", "b")
    assert d.ping(first, 1) == ILLEGAL
    assert d.ping(first, 2) == ErrorCode.NONE


def test_d8_a_join_that_is_sent_again_does_not_start_the_assignment_anew() -> None:
    d = DraftDialogue()
    d.ask_join(host="a")
    d.job()
    d.count(flights=5)
    first = d.ask_join("g-a-1", host="a")
    again = d.ask_join("g-a-1", host="a")
    assert d.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(d.waiting) == 1
    (answer,) = d.joined(again)
    assert answer.error_code == ErrorCode.NONE


def test_d12_a_short_session_that_ends_lets_the_others_go_on_before_the_longest_ends() -> None:
    d = DraftDialogue()
    slow = d.joined(d.ask_join(host="slow", session=60_000))[0].consumer_id
    quick = d.ask_join(host="quick", session=6_000)
    d.joined(d.ask_join(slow, host="slow", session=60_000), quick)
    new = d.ask_join(host="new")
    waiting = d.ask_join(slow, host="slow", session=60_000)
    d.advance(6_000)
    assert d.state == "Rebalancing"
    assert [each.group_generation_id for each in d.joined(waiting, new)] == [3, 3]


def test_a_session_that_ends_while_partitions_are_shared_out_is_started_anew() -> None:
    d = DraftDialogue()
    (first,) = d.steady("a")
    new = d.ask_join(host="b")
    again = d.ask_join(first, host="a")
    d.advance(30_000)  # a slow assignment
    assert d.state == "Rebalancing"
    assert [each.error_code for each in d.joined(again, new)] == [0, 0]
    assert d.ping(first, 2) == ErrorCode.NONE


def test_d3_d11_a_commit_and_then_a_join_under_an_id_that_is_given_up() -> None:
    """Both are pending; the first response must not remove the id that the second is about."""
    world = DraftWorld()
    north, south = world.joined("north", "south")
    world.commit(north)
    world.tell(north, Subscribed(FLIGHTS | {"delays"}))
    world.run_callback(north)
    assert [type(send.request).__name__ for send in north.requests] == [
        "OffsetCommitRequest",
        "DraftJoinGroupRequest",
    ]
    for _ in range(44):  # north's requests are lost, south continues
        world.now += 250
        while world.expire() or world.work(south) or world.run_own_job():
            pass
        world.tell(south, Polled())
    assert north.member.member_id not in world.group.consumers
    world.deliver_request(north)
    world.deliver_request(north)
    world.deliver_answer(north)
    world.deliver_answer(north)
    assert north.member.state is STOPPED
    assert not north.raised
    world.advance(15_000)
    assert world.everybody_is_part()
    assert north.member.member_id == "delays-north-3"


def test_a_coordinator_that_does_not_know_the_protocol_any_more_is_fatal() -> None:
    """The group moved to a broker without this protocol: heartbeats cannot be sent."""
    world = DraftWorld()
    (north,) = world.joined("north")
    while not north.requests:
        world.now += 250
        world.expire()
    code = ErrorCode.UNSUPPORTED_VERSION
    world.tell(north, RequestFailed(north.requests.popleft().token, "not served", code))
    assert north.member.state is FATAL
    assert [getattr(error, "code", None) for error in north.raised] == [code]
    world.run_callback(north)
    assert north.words[-1] == (Ownership.LOST, ALL)
