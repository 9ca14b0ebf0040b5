"""Outcomes of a consumer of the draft protocol: for each state and event, all effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kohort.errors import ErrorCode
from kohort.group.effects import Send
from kohort.group.member.draft.machine import DraftMember, DraftMemberSession, DraftMemberState
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CommitAnswered,
    CoordinatorLost,
    JobDone,
    LookupFailed,
    MemberEvent,
    RequestFailed,
    ResponseArrived,
    Subscribed,
)
from kohort.wire.codec.schema import Message
from kohort.wire.messages.draft import (
    DraftHeartbeatResponse,
    DraftJoinGroupRequest,
    DraftJoinGroupResponse,
    TopicAndPartition,
)
from tests.group.outcomes.parts import (
    DELAYS,
    FLIGHTS,
    NOBODY_KNOWS,
    Case,
    clocks,
    common_cases,
    outcome,
)
from tests.group.together.draft_world import GROUP, Application, DraftWorld

CODES = (
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)

Situation = tuple[DraftWorld, Application]


def down() -> Situation:
    world = DraftWorld()
    return world, world.start("north")


def discovering() -> Situation:
    """The coordinator is being looked up."""
    world, north = down()
    world.tell(north, Subscribed(FLIGHTS))
    return world, north


def joining() -> Situation:
    world, north = discovering()
    world.work(north)
    return world, north


def part() -> Situation:
    """A heartbeat is pending."""
    world = DraftWorld()
    (north,) = world.joined("north")
    while not north.requests:
        world.now += 250
        world.expire()
    return world, north


def told(*events: MemberEvent) -> Situation:
    """These events occurred while it was part of the group; its callback does not return."""
    world, north = part()
    for event in events:
        world.tell(north, event)
    return world, north


def joining_again() -> Situation:
    """It has revoked its partitions, and rejoins with the same id."""
    world, north = told(Subscribed(DELAYS))
    north.requests.clear()
    world.run_callback(north)
    return world, north


def closed() -> Situation:
    world, north = told(Closing())
    world.run_callback(north)
    return world, north


def fatal() -> Situation:
    world, north = discovering()
    world.tell(north, LookupFailed(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return world, north


SITUATIONS: dict[str, Callable[[], Situation]] = {
    "DOWN": down,
    "DISCOVER_COORDINATOR": discovering,
    "DISCOVER_COORDINATOR, joining": joining,
    "PART_OF_GROUP": part,
    "REDISCOVER_COORDINATOR": lambda: told(CoordinatorLost()),
    "STOPPED_CONSUMPTION": lambda: told(Subscribed(DELAYS)),
    "STOPPED_CONSUMPTION, joining": joining_again,
    "LEAVING": lambda: told(Closing()),
    "CLOSED": closed,
    "FATAL": fatal,
}


def state_of(situation: str) -> DraftMemberState:
    """Return the state of a situation."""
    return DraftMemberState[situation.partition(",")[0]]


def cases(member: DraftMember, waiting: Send | None) -> Iterator[Case]:
    """Yield every event that can occur in this situation."""
    yield from common_cases()
    nobody_waits = ResponseArrived(NOBODY_KNOWS, DraftHeartbeatResponse(error_code=0))
    yield Case("an answer nobody waits for", nobody_waits)
    yield Case("an assignment nobody waits for", JobDone(NOBODY_KNOWS, {}))
    for code in CODES:
        yield Case(f"commit answered {code.name}", CommitAnswered(member.identity, code))
    callback = member.session.callback
    if callback is not None:
        yield Case("call done", CallbackDone(callback.token))
        yield Case("call raised", CallbackDone(callback.token, "boom"))
    if waiting is not None:
        yield from _answers(member, waiting)


def _answers(member: DraftMember, sent: Send) -> Iterator[Case]:
    name = type(sent.request).__name__.removesuffix("Request")
    for code in CODES:
        response = _response(member, sent.request, code)
        yield Case(f"{name} answered {code.name}", ResponseArrived(sent.token, response))
    yield Case(f"{name} not answered", RequestFailed(sent.token))
    refused = RequestFailed(sent.token, "not known", ErrorCode.UNSUPPORTED_VERSION)
    yield Case(f"{name} not known to the broker", refused)


def _response(member: DraftMember, request: Message, code: ErrorCode) -> Message:
    if not isinstance(request, DraftJoinGroupRequest):
        return DraftHeartbeatResponse(error_code=code)
    if code is not ErrorCode.NONE:
        return DraftJoinGroupResponse(error_code=code, group_id=GROUP)
    given = (TopicAndPartition(topic=request.topics[0], partition=0),)
    return DraftJoinGroupResponse(
        error_code=code,
        group_id=GROUP,
        group_generation_id=member.generation_id + 2,
        consumer_id=member.member_id or "delays-north-9",
        partitions_to_own=given,
    )


def _standing(session: DraftMemberSession) -> str:
    known = "known" if session.member_id else "nobody"
    return f"is {known} in generation {session.generation}"


def table() -> dict[str, dict[str, str]]:
    """Run every case in every situation; deciding changes nothing, so one serves all."""
    found: dict[str, dict[str, str]] = {}
    for name, make in SITUATIONS.items():
        world, north = make()
        member = north.member
        assert member.state is state_of(name)
        waiting = north.requests[0] if north.requests else None
        found[name] = {
            case.name: outcome(member, case.event, world.now, _standing)
            for case in cases(member, waiting)
        }
        another = partial(DraftMember, member.config, member.host)
        found[name] |= clocks(member, another, _standing)
    return found
