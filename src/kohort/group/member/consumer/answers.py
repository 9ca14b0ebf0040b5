"""The coordinator's answers to a heartbeat, and how a member reacts to them (L35, L36)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kohort.errors import ErrorCode, KafkaError, told_by_server
from kohort.group.member.consumer import client_assignors, leave, reconcile, rhythm
from kohort.group.member.consumer.session import (
    NOT_JOINED,
    ConsumerMemberDecision,
    ConsumerMemberState,
)
from kohort.values import replace
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse

Answer = ConsumerGroupHeartbeatResponse


class Remedy(Enum):
    """The reaction to the error code of a heartbeat (L35, L36)."""

    NONE = "no error"
    REJOIN = "report the owned partitions as lost, and join again with the same id"
    FIND_COORDINATOR = "look for the coordinator"
    WAIT = "try again after a wait"
    TELL_AND_WAIT = "report the error to the application and retry; access may be granted later"
    FATAL = "give up"


_REMEDIES: dict[int, Remedy] = {
    ErrorCode.NONE: Remedy.NONE,
    ErrorCode.FENCED_MEMBER_EPOCH: Remedy.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Remedy.REJOIN,
    ErrorCode.NOT_COORDINATOR: Remedy.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Remedy.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Remedy.WAIT,
    ErrorCode.REQUEST_TIMED_OUT: Remedy.WAIT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Remedy.TELL_AND_WAIT,
}


def remedy(code: int, *, is_member: bool) -> Remedy:
    """Return the reaction to the answer to a heartbeat; any unknown error is fatal.

    Args:
        code: Its error code.
        is_member: Whether the sender was a member already, rather than joining. If its group is
            gone, it was deleted while the member was away, and joining creates it again.
    """
    if code == ErrorCode.GROUP_ID_NOT_FOUND and is_member:
        return Remedy.REJOIN
    return _REMEDIES.get(code, Remedy.FATAL)


def says(wanted: Remedy) -> Callable[[ConsumerMemberDecision, Answer], bool]:
    """Return a guard that checks whether an answer's error calls for this reaction."""

    def guard(decision: ConsumerMemberDecision, answer: Answer) -> bool:
        return remedy(answer.error_code, is_member=decision.session.is_member) is wanted

    guard.__name__ = f"says_{wanted.name.lower()}"
    return guard


def is_nonsense(decision: ConsumerMemberDecision, answer: Answer) -> bool:
    """Return whether the answer's epoch is invalid or older than the member's."""
    lowest = max(decision.session.epoch, NOT_JOINED + 1)
    return answer.error_code == ErrorCode.NONE and answer.member_epoch < lowest


def note_answer(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """Store the identity and the time of the next heartbeat."""
    session, config = decision.session, decision.config
    interval_ms = answer.heartbeat_interval_ms
    if interval_ms <= 0:
        interval_ms = config.heartbeat_interval_ms
    moments = 0
    if not session.is_member:
        moments = rhythm.AFTER_JOIN
    elif reconcile.is_news(session, answer.assignment):
        moments = rhythm.AFTER_CHANGE
    decision.session = replace(
        session,
        member_id=answer.member_id or session.member_id,  # version 0 lets the broker choose
        epoch=answer.member_epoch,
        interval_ms=interval_ms,
        failures=0,
    )
    rhythm.begin(decision, moments=moments)
    client_assignors.note_answer(decision, answer)


def note_newer_target(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """L33: store the new target until the present change is acknowledged."""
    note_answer(decision, answer)
    reconcile.note_target(decision, answer.assignment)


def follow(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """L32, L33: reconcile the target, unless the application is being called."""
    note_newer_target(decision, answer)
    session = decision.session
    rests = decision.state is ConsumerMemberState.STABLE and reconcile.is_reconciled(session)
    if session.callback is None and not rests:
        reconcile.begin(decision)


def tell_and_try_again(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """L36: access to a topic is denied; retry, since an administrator may grant it."""
    decision.raised.append(KafkaError(answer.error_code, told_by_server(answer.error_message)))
    rhythm.beat_later(decision)


def give_up(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """L36: the error is permanent; no retry would help."""
    what = told_by_server(answer.error_message) or f"cannot be in group {decision.config.group_id}"
    leave.fail(decision, answer.error_code, what)
