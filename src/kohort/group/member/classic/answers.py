"""The coordinator's answers, and how a member reacts to them (L10, L11)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from kohort.errors import ErrorCode, KohortError
from kohort.group.member.classic import join
from kohort.group.member.classic.join import Answer
from kohort.group.member.classic.session import ClassicMemberDecision
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.events import SESSION_OVERDUE, CommitAnswered, HeartbeatAnswered, JobDone
from kohort.values import replace
from kohort.wire.messages.membership import JoinGroupResponse, SyncGroupResponse

Answered: TypeAlias = HeartbeatAnswered | CommitAnswered
Rebalancing: TypeAlias = JoinGroupResponse | SyncGroupResponse


class Remedy(Enum):
    """The reaction to an error code of the coordinator (L10)."""

    NONE = "no error"
    REJOIN = "join again at once with the same identity"
    RESET_GENERATION = "forget the generation, keep the member id, join again (KAFKA-13419)"
    RESET_MEMBER = "forget the member id and generation, join again"
    KEEP_MEMBER_ID = "join again at once with the id in the answer (KIP-394)"
    FIND_COORDINATOR = "look for the coordinator"
    WAIT = "try again after a wait"
    FATAL = "give up"


_REMEDIES: dict[int, Remedy] = {
    ErrorCode.NONE: Remedy.NONE,
    ErrorCode.UNKNOWN_MEMBER_ID: Remedy.RESET_MEMBER,
    ErrorCode.ILLEGAL_GENERATION: Remedy.RESET_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS: Remedy.REJOIN,
    ErrorCode.MEMBER_ID_REQUIRED: Remedy.KEEP_MEMBER_ID,
    # Java's client fails if SyncGroup gets this error (C45); a retry after a wait succeeds.
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Remedy.WAIT,
    ErrorCode.REQUEST_TIMED_OUT: Remedy.WAIT,
    ErrorCode.NOT_COORDINATOR: Remedy.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Remedy.FIND_COORDINATOR,
}


def remedy(answer: Answer) -> Remedy:
    """Return the reaction to an answer; any unknown error is fatal.

    MEMBER_ID_REQUIRED is fatal too, except in the answer to a JoinGroup.
    """
    found = _REMEDIES.get(answer.error_code, Remedy.FATAL)
    is_wrong = found is Remedy.KEEP_MEMBER_ID and not isinstance(answer, JoinGroupResponse)
    return Remedy.FATAL if is_wrong else found


def says(wanted: Remedy) -> Callable[[ClassicMemberDecision, Answer], bool]:
    """Return a guard that checks whether an answer's error calls for this reaction."""

    def guard(_decision: ClassicMemberDecision, answer: Answer) -> bool:
        return remedy(answer) is wanted

    guard.__name__ = f"says_{wanted.name.lower()}"
    return guard


def says_gone(_decision: ClassicMemberDecision, answer: Answer) -> bool:
    """L3, L10: return whether the coordinator does not know the member or its generation."""
    return remedy(answer) in (Remedy.RESET_MEMBER, Remedy.RESET_GENERATION)


# ---------------------------------------------------------------------------------- join and sync


def is_welcome(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> bool:
    """Return whether the member was accepted, with an assignor that it knows."""
    return answer.error_code == ErrorCode.NONE and join.is_known_answer(decision, answer)


def refuse_generation(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> None:
    """The coordinator chose an assignor that this member never offered."""
    what = f"the group uses {answer.protocol_type}/{answer.protocol_name}"
    join.fail(decision, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, what)


def take_member_id(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> None:
    """L10 (KIP-394): join again at once with the id from the answer."""
    decision.session = replace(decision.session, member_id=answer.member_id)
    join.send_join(decision)


def find_and_join(decision: ClassicMemberDecision, _answer: object) -> None:
    """L10: the coordinator has moved or is gone."""
    join.forget_coordinator(decision)
    join.try_again_later(decision, "the coordinator is not available")


def wait_and_join(decision: ClassicMemberDecision, answer: Rebalancing) -> None:
    """L10: the coordinator is still loading."""
    join.try_again_later(decision, ErrorCode(answer.error_code).name)


def give_up_joining(decision: ClassicMemberDecision, answer: Rebalancing) -> None:
    """L10: the error is permanent; no retry would help."""
    what = f"could not join group {decision.config.group_id}"
    join.fail(decision, answer.error_code, what + _why(decision, answer.error_code))


def is_failed(_decision: ClassicMemberDecision, done: JobDone) -> bool:
    """Return whether the assignor raised."""
    return done.assignments is None


def cannot_speak(decision: ClassicMemberDecision, done: JobDone) -> None:
    """An assignor raised when asked for user data: report it to the application, and retry."""
    decision.raised.append(KohortError(done.error))
    join.try_again_later(decision, "an assignor failed")


def give_back_the_lead(decision: ClassicMemberDecision, done: JobDone) -> None:
    """The assignor raised: report it to the application, and have the group try again."""
    assignor = decision.session.assignor
    decision.raised.append(KohortError(f"assignor {assignor} failed: {done.error}"))
    join.try_again_later(decision, "the assignor failed")


# ----------------------------------------------------------------------------- heartbeat and commit


def is_outdated(decision: ClassicMemberDecision, answer: CommitAnswered) -> bool:
    """L11: return whether the request had an id or generation that the member no longer has.

    Heartbeats are never outdated: a member whose id changes ignores the one in flight.
    """
    session = decision.session
    return answer.sent != CommitIdentity(session.member_id, session.generation)


def note_alive(decision: ClassicMemberDecision, answer: Answered) -> None:
    """The coordinator has answered: after a heartbeat, the session timeout restarts."""
    if isinstance(answer, HeartbeatAnswered):
        decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)


def follow_rebalance(decision: ClassicMemberDecision, answer: Answered) -> None:
    """L10: the group rebalances: give up partitions, and join."""
    note_alive(decision, answer)
    join.rejoin(decision, "the group is rebalancing")


def follow_later(decision: ClassicMemberDecision, answer: Answered) -> None:
    """L10: another rebalance began before this one ended: finish this one first."""
    note_alive(decision, answer)
    decision.session = replace(decision.session, rejoin="the group is rebalancing")


def is_fatal_commit(_decision: ClassicMemberDecision, answer: CommitAnswered) -> bool:
    """L11: return whether a commit's error ends the membership; most affect only the commit."""
    return answer.error_code == ErrorCode.FENCED_INSTANCE_ID


def give_up(decision: ClassicMemberDecision, answer: Answered) -> None:
    """L10: another member has this instance id, or access to the group is denied."""
    what = f"cannot stay in group {decision.config.group_id}"
    join.fail(decision, answer.error_code, what + _why(decision, answer.error_code))


def _why(decision: ClassicMemberDecision, code: int) -> str:
    match code:
        case ErrorCode.FENCED_INSTANCE_ID:
            return f": another member has group.instance.id {decision.config.group_instance_id}"
        case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            names = ", ".join(each.name for each in decision.assignors)
            return (
                f": this member offers the assignors {names}, and one of the others has none of "
                "them. `kohort groups describe` shows which assignor the group uses; name it in "
                "partition_assignment_strategy. Or the group has another protocol type than "
                f"{decision.protocol_type!r}, which can change only while it is empty"
            )
        case _:
            return ""
