"""The coordinator's answers, and how a consumer reacts to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kohort.errors import ErrorCode
from kohort.group.member import lookup
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.draft import join
from kohort.group.member.draft.session import DraftMemberDecision, DraftMemberState
from kohort.group.member.events import SESSION_OVERDUE, CommitAnswered, HeartbeatAnswered
from kohort.values import replace
from kohort.wire.messages.draft import DraftJoinGroupResponse

Answered: TypeAlias = HeartbeatAnswered | CommitAnswered
Guard: TypeAlias = "Callable[[DraftMemberDecision, Answered | DraftJoinGroupResponse], bool]"

# Errors that mean: the wrong broker, or try later.
_REDISCOVER = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_WAIT = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT)


def _says(name: str, *codes: ErrorCode) -> Guard:
    """Return a guard that checks whether an answer has one of these error codes."""

    def guard(_decision: DraftMemberDecision, answer: Answered | DraftJoinGroupResponse) -> bool:
        return answer.error_code in codes

    guard.__name__ = name
    return guard


says_nothing = _says("says_nothing", ErrorCode.NONE)
says_illegal_generation = _says("says_illegal_generation", ErrorCode.ILLEGAL_GENERATION)
says_unknown_consumer = _says("says_unknown_consumer", ErrorCode.UNKNOWN_MEMBER_ID)
says_rediscover = _says("says_rediscover", *_REDISCOVER)
says_wait = _says("says_wait", *_WAIT)


# -------------------------------------------------------------------------------------------- join


def is_welcome(decision: DraftMemberDecision, answer: DraftJoinGroupResponse) -> bool:
    """D22: return whether the answer has an id, a generation and only requested topics."""
    topics = decision.session.joined_topics
    matches = all(each.topic in topics for each in answer.partitions_to_own)
    is_complete = bool(answer.consumer_id) and answer.group_generation_id >= 0
    return answer.error_code == ErrorCode.NONE and is_complete and matches


def become_part(decision: DraftMemberDecision, answer: DraftJoinGroupResponse) -> None:
    """D22: consume, unless the application has changed its subscription meanwhile."""
    join.become_part(decision, answer)
    if decision.session.topics != decision.session.joined_topics:
        join.stop(decision, "the subscription changed")


def has_id(decision: DraftMemberDecision, _answer: DraftJoinGroupResponse) -> bool:
    """Return whether the join was sent with an id, which the coordinator may have dropped."""
    return bool(decision.session.member_id) and says_unknown_consumer(decision, _answer)


def join_as_new(decision: DraftMemberDecision, _answer: DraftJoinGroupResponse) -> None:
    """D3, D11: the join came too late: join as a new consumer."""
    join.drop_id(decision)
    join.go_on(decision)


def find_coordinator(decision: DraftMemberDecision, _answer: object) -> None:
    """D1: the coordinator has moved, or is not ready: look for it, then continue."""
    join.forget(decision)
    lookup.look_up_later(decision)


def give_up(decision: DraftMemberDecision, answer: DraftJoinGroupResponse) -> None:
    """Fail: no retry would help."""
    code = answer.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
    what = f"could not join group {decision.config.group_id}"
    if code == ErrorCode.UNSUPPORTED_VERSION:
        what += ": the draft protocol needs a Kohort broker that has it among its protocols"
    join.fail(decision, code, what)


# ---------------------------------------------------------------------------- heartbeat and commit


def is_outdated(decision: DraftMemberDecision, answer: CommitAnswered) -> bool:
    """D3: return whether the request's id is one that the consumer has lost or is about to lose.

    The answer to a join in flight with the same id replaces it. Heartbeats are never outdated: a
    consumer whose id changes ignores the one in flight.
    """
    session = decision.session
    is_same = answer.sent == CommitIdentity(session.member_id, session.generation)
    return not is_same or session.request is not None


def note_alive(decision: DraftMemberDecision, answer: Answered) -> None:
    """The coordinator has answered: the session timeout restarts."""
    if isinstance(answer, HeartbeatAnswered):
        decision.session = replace(decision.session, failures=0)
        decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)


def stop_consumption(decision: DraftMemberDecision, answer: Answered) -> None:
    """D4, D24: stop consumption on the signal to rejoin."""
    note_alive(decision, answer)
    join.stop(decision, "the group is rebalancing")


def lose_everything(decision: DraftMemberDecision, _answer: Answered) -> None:
    """D3, D7: others may already own our partitions: join as a new consumer."""
    join.drop_id(decision)
    join.stop(decision, "the coordinator does not know this consumer")


def rediscover(decision: DraftMemberDecision, _answer: Answered) -> None:
    """D1, D23: look for the coordinator after a wait, and keep reading meanwhile."""
    join.forget(decision)
    decision.enter(DraftMemberState.REDISCOVER_COORDINATOR)
    lookup.look_up_later(decision)


def leave_group(decision: DraftMemberDecision, answer: Answered) -> None:
    """Fail: access to the group is denied."""
    join.fail(decision, answer.error_code, f"cannot stay in group {decision.config.group_id}")
