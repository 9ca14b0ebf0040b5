"""The end of a job: the heartbeats that waited for it continue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer import (
    heartbeat,
    member_target,
    regex,
    target,
    validate,
)
from kohort.group.coordinator.consumer.decision import ConsumerDecision
from kohort.group.coordinator.consumer.refused import Refused
from kohort.group.coordinator.consumer.state.group import LEAVE_STATIC_EPOCH
from kohort.group.coordinator.consumer.state.session import Heartbeat, Waiting
from kohort.group.coordinator.events import JobDone, RequestArrived
from kohort.group.coordinator.jobs import MatchedTopics, NewTarget
from kohort.group.coordinator.refusals import join_refused, refuse
from kohort.values import replace
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentResponse as Installed,
)
from kohort.wire.messages.client_assignors import (
    ConsumerGroupPrepareAssignmentResponse as Prepared,
)
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.membership import JoinGroupRequest

R = TypeVar("R", bound=Message)


def attempt(
    decision: ConsumerDecision,
    arrived: RequestArrived[R],
    work: Callable[[ConsumerDecision, RequestArrived[R]], None],
) -> ConsumerDecision:
    """Run a function for a request; if it is refused, the error is the only effect."""
    trial = decision.copy()
    try:
        work(trial, arrived)
    except Refused as refusal:
        response = failed(arrived, refusal.code, refusal.message)
        decision.reply(arrived.token, response, arrived.version)
        return decision
    return trial


def failed(arrived: RequestArrived[R], code: ErrorCode, message: str | None = None) -> Message:
    """Return the answer to a request that carries only an error."""
    if isinstance(arrived.request, ConsumerGroupHeartbeatRequest):
        return heartbeat.failed(code, message)
    if isinstance(arrived.request, JoinGroupRequest):
        # Unlike a classic group's answer this one does not name the member (K45); one that Kafka
        # gives before it reads the group does.
        named = None if code is ErrorCode.INVALID_SESSION_TIMEOUT else ""
        return join_refused(arrived.request, arrived.version, code, named)
    response = refuse(cast("Request[Message]", arrived.request), arrived.version, code)
    if isinstance(response, (Prepared, Installed)):
        return replace(response, error_message=message)
    return response


def job_done(decision: ConsumerDecision, done: JobDone) -> ConsumerDecision:
    """Use the result of a job, unless it is obsolete."""
    match done.result:
        case NewTarget() as made:
            return _target_made(decision, done.token, made)
        case MatchedTopics() as found:
            return _regexes_resolved(decision, done.token, found)


def _target_made(decision: ConsumerDecision, token: int, made: NewTarget) -> ConsumerDecision:
    run = decision.session.targets.get(decision.group_id)
    if run is None or run.token != token:
        member_target.installed(decision, token, made)
        return decision
    target.end(decision, run)
    if decision.group is not None and made.error is None:
        target.store(decision, run.epoch, made)
    waiting = run.waiting
    if waiting is None:
        return decision
    return attempt(decision, waiting.arrived, lambda trial, _: _resume(trial, waiting, made))


def _resume(decision: ConsumerDecision, waiting: Waiting, made: NewTarget) -> None:
    """K12: the heartbeat continues where it stopped, if its member still exists.

    A static member that announced its return (K32) does not, and must not be brought back by
    it sent before: its successor would be refused.
    """
    if made.error is not None:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, made.error)
    group = decision.group
    member = group.members.get(waiting.member_id) if group else None
    if member is None or member.epoch == LEAVE_STATIC_EPOCH:
        raise validate.unknown_member(waiting.arrived.request.group_id, waiting.member_id)
    match waiting.arrived:
        case RequestArrived(request=JoinGroupRequest()) as joined:
            decision.passage.go_on(
                decision,
                cast("RequestArrived[JoinGroupRequest]", joined),
                member,
                waiting.resubscribed,
            )
        case beat:
            heartbeat.reconcile_and_reply(
                decision, cast("Heartbeat", beat), member, waiting.before, waiting.resubscribed
            )


def _regexes_resolved(
    decision: ConsumerDecision, token: int, found: MatchedTopics
) -> ConsumerDecision:
    if decision.session.resolving.get(decision.group_id) == token:
        resolving = decision.session.resolving.delete(decision.group_id)
        decision.session = replace(decision.session, resolving=resolving)
        regex.store(decision, found)
    return decision
