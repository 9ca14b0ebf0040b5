"""Outcomes of a KIP-848 member: for each state and event, the next state, requests and calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kohort.errors import ErrorCode
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.consumer.machine import ConsumerMember, ConsumerMemberState
from kohort.group.member.consumer.session import ConsumerMemberSession
from kohort.group.member.events import (
    CallbackDone,
    CommitAnswered,
    CoordinatorLost,
    JobDone,
    MemberEvent,
    RequestFailed,
    ResponseArrived,
    Subscribed,
    TopicsNamed,
    Unsubscribed,
)
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse
from tests.group.member.consumer.consumer_member import (
    INTERVAL_MS,
    MEMBER_ID,
    NAMES,
    Stage,
    assignment,
    joining,
    reconciling,
    stable,
)
from tests.group.outcomes.parts import NOBODY_KNOWS, Case, clocks, common_cases, outcome

S = ConsumerMemberState
CODES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


def beating(stage: Stage) -> Stage:
    """Return it with a pending heartbeat."""
    stage.wait(INTERVAL_MS)
    return stage


def told(stage: Stage, *events: MemberEvent) -> Stage:
    for event in events:
        stage.tell(event)
    return stage


def acknowledging() -> Stage:
    """No request can be sent: the coordinator is being looked up."""
    stage = told(reconciling(0), CoordinatorLost())
    stage.called()
    stage.called()
    return stage


def fenced() -> Stage:
    stage = beating(stable(0, 1))
    stage.answer(0, code=ErrorCode.FENCED_MEMBER_EPOCH)
    return stage


def leaving() -> Stage:
    stage = told(stable(0, 1), Unsubscribed())
    stage.called()
    return stage


def stale() -> Stage:
    stage = stable(0, 1)
    while stage.state() is not S.LEAVING:
        stage.wait(INTERVAL_MS)
        if stage.state() is S.STABLE and stage.requests:
            stage.answer(1)
    stage.answer(-1)
    return stage


def fatal() -> Stage:
    stage = beating(stable(0, 1))
    stage.answer(0, code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return stage


SITUATIONS: dict[ConsumerMemberState, Callable[[], Stage]] = {
    S.UNSUBSCRIBED: Stage,
    S.JOINING: joining,
    S.RECONCILING: lambda: reconciling(1, 2),
    S.ACKNOWLEDGING: acknowledging,
    S.STABLE: lambda: beating(stable(0, 1)),
    S.FENCED: fenced,
    S.PREPARE_LEAVING: lambda: told(stable(0, 1), Unsubscribed()),
    S.LEAVING: leaving,
    S.FATAL: fatal,
    S.STALE: stale,
}


def cases(stage: Stage) -> Iterator[Case]:
    """Yield every event that can occur in this situation."""
    session = stage.member.session
    identity = CommitIdentity(MEMBER_ID, session.epoch)
    yield from common_cases()
    yield Case("subscribes to a pattern", Subscribed(frozenset(), "d.*"))
    yield Case("topics are named", TopicsNamed(NAMES))
    yield Case("an answer nobody waits for", _answered(NOBODY_KNOWS, 1))
    yield Case("an assignment nobody waits for", JobDone(NOBODY_KNOWS, {}))
    yield Case("commit answered NONE", CommitAnswered(identity, 0))
    for name, code in (
        ("FENCED", ErrorCode.FENCED_MEMBER_EPOCH),
        ("UNKNOWN", ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        yield Case(f"commit answered {name}", CommitAnswered(identity, code))
    if session.callback is not None:
        yield Case("call done", CallbackDone(session.callback.token))
        yield Case("call raised", CallbackDone(session.callback.token, "boom"))
    if session.heartbeat is not None:
        yield from _answers(session.heartbeat.token, session.epoch)


def _answers(token: int, epoch: int) -> Iterator[Case]:
    yield Case("heartbeat answered", _answered(token, epoch))
    yield Case("heartbeat answered with another target", _answered(token, epoch + 1, 2))
    for code in CODES:
        yield Case(f"heartbeat answered {code.name}", _answered(token, 0, code=code))
    yield Case("heartbeat not answered", RequestFailed(token))
    refused = RequestFailed(token, "too old", ErrorCode.UNSUPPORTED_VERSION)
    yield Case("heartbeat refused by the version", refused)


def _answered(token: int, epoch: int, *given: int, code: int = 0) -> ResponseArrived:
    response = ConsumerGroupHeartbeatResponse(
        error_code=code,
        error_message=None,
        member_id=MEMBER_ID,
        member_epoch=epoch,
        heartbeat_interval_ms=INTERVAL_MS,
        assignment=assignment(*given) if given else None,
    )
    return ResponseArrived(token, response)


def _standing(session: ConsumerMemberSession) -> str:
    return f"owns {len(session.owned)} at epoch {session.epoch}"


def table() -> dict[str, dict[str, str]]:
    """Run every case in every state; deciding changes nothing, so one situation serves all."""
    found: dict[str, dict[str, str]] = {}
    for state, make in SITUATIONS.items():
        stage = make()
        assert stage.state() is state, (stage.state(), state)
        member = stage.member
        found[state.name] = {
            case.name: outcome(member, case.event, stage.now, _standing) for case in cases(stage)
        }
        another = partial(ConsumerMember, stage.config, MEMBER_ID)
        found[state.name] |= clocks(member, another, _standing)
    return found
