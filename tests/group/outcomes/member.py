"""Outcomes of a classic member: for each state and event, state, requests, calls and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kohort.errors import ErrorCode
from kohort.group.coordinator.refusals import join_refused, sync_refused
from kohort.group.effects import Send
from kohort.group.member.classic.machine import (
    ClassicMember,
    ClassicMemberSession,
    ClassicMemberState,
)
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CommitAnswered,
    JobDone,
    LookupFailed,
    MemberEvent,
    RejoinAsked,
    RequestFailed,
    ResponseArrived,
    Subscribed,
)
from kohort.wire.codec.schema import Message
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
)
from tests.group.outcomes.parts import (
    FLIGHTS,
    NOBODY_KNOWS,
    Case,
    clocks,
    common_cases,
    outcome,
)
from tests.group.together.world import Application, World

S = ClassicMemberState
CODES = (
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


def until(state: ClassicMemberState, *events: MemberEvent) -> tuple[World, Application]:
    """One member of a group of its own, told some events once stable, driven until a state."""
    world = World()
    north = world.start("north")
    world.topics = {"flights": 2}
    if state is S.UNSUBSCRIBED:
        return world, north
    world.tell(north, Subscribed(FLIGHTS))
    left = list(events)
    for _ in range(60):
        if not left and north.member.state is state:
            return world, north
        if left and north.member.state is S.STABLE:
            world.tell(north, left.pop(0))
        elif not world.work(north):
            world.expire()
    raise AssertionError(f"{north.member.state}, not {state}")


def stale() -> tuple[World, Application]:
    world, north = until(S.STABLE)
    world.advance(61_000, poll=False)
    return world, north


SITUATIONS: dict[ClassicMemberState, Callable[[], tuple[World, Application]]] = {
    S.UNSUBSCRIBED: lambda: until(S.UNSUBSCRIBED),
    S.UNJOINED: lambda: until(S.UNJOINED),
    S.PREPARING_REBALANCE: lambda: until(S.PREPARING_REBALANCE),
    S.COMPLETING_REBALANCE: lambda: until(S.COMPLETING_REBALANCE),
    S.ASSIGNING: lambda: until(S.ASSIGNING),
    S.STABLE: lambda: until(S.STABLE),
    S.REVOKING: lambda: until(S.REVOKING, RejoinAsked("")),
    S.LEAVING: lambda: until(S.LEAVING, Closing()),
    S.STALE: stale,
    S.CLOSED: lambda: until(S.CLOSED, Closing()),
    S.FATAL: lambda: until(S.FATAL, LookupFailed(ErrorCode.GROUP_AUTHORIZATION_FAILED)),
}


def cases(member: ClassicMember, waiting: Send | None) -> Iterator[Case]:
    """Yield every event that can occur in this situation."""
    session = member.session
    yield from common_cases()
    nobody_waits = ResponseArrived(NOBODY_KNOWS, HeartbeatResponse(error_code=0))
    yield Case("an answer nobody waits for", nobody_waits)
    for code in CODES:
        yield Case(f"commit answered {code.name}", CommitAnswered(member.identity, code))
    if session.callback is not None:
        yield Case("call done", CallbackDone(session.callback.token))
        yield Case("call raised", CallbackDone(session.callback.token, "boom"))
    if session.job is not None:
        yield Case("assignment made", JobDone(session.job.token, {member.member_id: b""}))
        yield Case("assignment failed", JobDone(session.job.token, None, "boom"))
    if waiting is not None:
        yield from _answers(waiting)


def _answers(sent: Send) -> Iterator[Case]:
    name = type(sent.request).__name__.removesuffix("Request")
    for code in CODES:
        if code is ErrorCode.NONE and isinstance(sent.request, JoinGroupRequest):
            continue  # its effects are covered by the situations
        response = _response(sent.request, code)
        yield Case(f"{name} answered {code.name}", ResponseArrived(sent.token, response))
    yield Case(f"{name} not answered", RequestFailed(sent.token))


def _response(request: Message, code: ErrorCode) -> Message:
    if isinstance(request, JoinGroupRequest):
        return join_refused(request, 9, code, "north-1")
    if isinstance(request, SyncGroupRequest):
        return sync_refused(code)
    if isinstance(request, HeartbeatRequest):
        return HeartbeatResponse(error_code=code)
    return LeaveGroupResponse(error_code=code)


# ------------------------------------------------------------------------------------- outcomes


def _standing(session: ClassicMemberSession) -> str:
    return f"is {'a' if session.member_id else 'no'} member of {session.generation}"


def table() -> dict[str, dict[str, str]]:
    """Run every case in every state; deciding changes nothing, so one situation serves all."""
    found: dict[str, dict[str, str]] = {}
    for state, make in SITUATIONS.items():
        world, north = make()
        member = north.member
        assert member.state is state
        waiting = north.requests[0] if north.requests else None
        outcomes = {
            case.name: outcome(member, case.event, world.now, _standing)
            for case in cases(member, waiting)
        }
        outcomes |= clocks(member, partial(another, member), _standing)
        if state is S.STABLE:
            outcomes |= _of_its_heartbeat(world, north)
        found[state.name] = outcomes
    return found


def another(member: ClassicMember) -> ClassicMember:
    """Return another member with the same settings."""
    return ClassicMember(member.config, list(member.assignors.values()))


def _of_its_heartbeat(world: World, north: Application) -> dict[str, str]:
    while not north.requests:
        world.now += 1_000
        world.expire()
    answers = _answers(north.requests[0])
    return {case.name: outcome(north.member, case.event, world.now, _standing) for case in answers}
