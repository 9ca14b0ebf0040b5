"""What the coordinator answered, and how a member goes on (L10, L11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kohort.errors import ErrorCode, KohortError
from kohort.group.member.classic import coordinator, join, leave
from kohort.group.member.classic.errors import Remedy, join_remedy, remedy
from kohort.group.member.classic.session import ClassicMemberDecision
from kohort.group.member.commits import CommitIdentity
from kohort.group.member.events import (
    SESSION_OVERDUE,
    CommitAnswered,
    HeartbeatAnswered,
    JobDone,
)
from kohort.values import replace
from kohort.wire.messages.membership import (
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)

Answered: TypeAlias = HeartbeatAnswered | CommitAnswered
Rebalancing: TypeAlias = JoinGroupResponse | SyncGroupResponse


def join_says(wanted: Remedy) -> Callable[[ClassicMemberDecision, JoinGroupResponse], bool]:
    """Return a guard: whether the error of a JoinGroup answer has this remedy."""

    def guard(_decision: ClassicMemberDecision, answer: JoinGroupResponse) -> bool:
        return join_remedy(answer.error_code) is wanted

    guard.__name__ = f"says_{wanted.name.lower()}"
    return guard


def says(wanted: Remedy) -> Callable[[ClassicMemberDecision, Answered | SyncGroupResponse], bool]:
    """Return a guard: whether the error of another answer has this remedy."""

    def guard(_decision: ClassicMemberDecision, answer: Answered | SyncGroupResponse) -> bool:
        return remedy(answer.error_code) is wanted

    guard.__name__ = f"says_{wanted.name.lower()}"
    return guard


def says_gone(_decision: ClassicMemberDecision, answer: Answered | Rebalancing) -> bool:
    """L3, L10: whether the coordinator does not know us, or not in this generation."""
    return remedy(answer.error_code) in (Remedy.RESET_MEMBER, Remedy.RESET_GENERATION)


# ---------------------------------------------------------------------------------- join and sync


def is_welcome(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> bool:
    """Whether we are in, and with an assignor that we know."""
    return answer.error_code == ErrorCode.NONE and join.is_known_answer(decision, answer)


def accept_generation(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> None:
    """L9: go on to the second phase."""
    join.become_part(decision, answer)


def refuse_generation(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> None:
    """The coordinator chose an assignor that we never named."""
    what = f"the group uses {answer.protocol_type}/{answer.protocol_name}"
    join.fail(decision, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, what)


def take_member_id(decision: ClassicMemberDecision, answer: JoinGroupResponse) -> None:
    """L10 (KIP-394): come back at once with the id we were given."""
    decision.session = replace(decision.session, member_id=answer.member_id)
    join.send_join(decision)


def join_again(decision: ClassicMemberDecision, _answer: Rebalancing) -> None:
    """L10: the next rebalance has begun; join it as who we are."""
    join.send_join(decision)


def join_anew(decision: ClassicMemberDecision, answer: Rebalancing | Answered) -> None:
    """L3b, L10: we are not who we thought; what we own is lost, join as somebody new."""
    join.join_anew(decision, answer.error_code)


def find_and_join(decision: ClassicMemberDecision, _answer: object) -> None:
    """L10: the coordinator has moved, or is gone."""
    coordinator.forget(decision)
    join.try_again_later(decision, "the coordinator is not available")


def wait_and_join(decision: ClassicMemberDecision, answer: Rebalancing) -> None:
    """L10: the coordinator is busy loading."""
    join.try_again_later(decision, ErrorCode(answer.error_code).name)


def give_up_joining(decision: ClassicMemberDecision, answer: Rebalancing) -> None:
    """L10: nothing that we could do would help."""
    what = f"could not join group {decision.config.group_id}"
    join.fail(decision, answer.error_code, what + _whose(decision, answer.error_code))


def accept_assignment(decision: ClassicMemberDecision, answer: SyncGroupResponse) -> None:
    """L5: take what we were given."""
    join.take_assignment(decision, answer)


def is_failed(_decision: ClassicMemberDecision, done: JobDone) -> bool:
    """Whether the assignor raised."""
    return done.assignments is None


def cannot_speak(decision: ClassicMemberDecision, done: JobDone) -> None:
    """An assignor raised when it was asked: the application is told, and the member tries again."""
    decision.raised.append(KohortError(done.error))
    join.try_again_later(decision, "an assignor failed")


def join_as_said(decision: ClassicMemberDecision, done: JobDone) -> None:
    """L2: what the assignors have to say goes to the coordinator with JoinGroup."""
    join.note_said(decision, done.assignments or {})


def give_back_the_lead(decision: ClassicMemberDecision, done: JobDone) -> None:
    """The assignor raised: the application is told, and the group tries again."""
    assignor = decision.session.assignor
    decision.raised.append(KohortError(f"assignor {assignor} failed: {done.error}"))
    join.try_again_later(decision, "the assignor failed")


def hand_over(decision: ClassicMemberDecision, done: JobDone) -> None:
    """The assignment is made: SyncGroup takes it to the coordinator."""
    join.hand_over(decision, dict(done.assignments or {}))


def left(decision: ClassicMemberDecision, _answer: LeaveGroupResponse) -> None:
    """We are out; if the coordinator refused, we were out before."""
    leave.finish(decision)


# ----------------------------------------------------------------------------- heartbeat and commit


def is_outdated(decision: ClassicMemberDecision, answer: CommitAnswered) -> bool:
    """L11: whether it answers somebody that we are not any more.

    A heartbeat cannot: who becomes somebody else does not wait for its answer.
    """
    session = decision.session
    return answer.sent != CommitIdentity(session.member_id, session.generation)


def pass_over(_decision: ClassicMemberDecision, _answer: object) -> None:
    """Nothing to do."""


def note_alive(decision: ClassicMemberDecision, answer: Answered) -> None:
    """The coordinator has heard us: that is what its session timeout counts from."""
    if isinstance(answer, HeartbeatAnswered):
        decision.start(SESSION_OVERDUE, decision.config.session_timeout_ms)


def follow_rebalance(decision: ClassicMemberDecision, answer: Answered) -> None:
    """L10: the group rebalances: give up what we own, and join."""
    note_alive(decision, answer)
    join.rejoin(decision, "the group is rebalancing")


def follow_later(decision: ClassicMemberDecision, answer: Answered) -> None:
    """L10: the next rebalance comes before this one is through: finish it first."""
    note_alive(decision, answer)
    decision.session = replace(decision.session, rejoin="the group is rebalancing")


def note_lost_membership(decision: ClassicMemberDecision, answer: Answered) -> None:
    """L10: removed while the application is called; go on from there when it returns."""
    join.reset_identity(decision, answer.error_code)


def find_coordinator(decision: ClassicMemberDecision, _answer: object) -> None:
    """L10: the coordinator has moved; that alone changes nothing about what we own."""
    coordinator.forget(decision)


def is_fatal_commit(_decision: ClassicMemberDecision, answer: CommitAnswered) -> bool:
    """L11: most errors of a commit are the commit's alone."""
    return answer.error_code == ErrorCode.FENCED_INSTANCE_ID


def give_up(decision: ClassicMemberDecision, answer: Answered) -> None:
    """L10: another member has our instance id, or we may not be in this group."""
    what = f"cannot stay in group {decision.config.group_id}"
    join.fail(decision, answer.error_code, what + _whose(decision, answer.error_code))


def _whose(decision: ClassicMemberDecision, code: int) -> str:
    if code != ErrorCode.FENCED_INSTANCE_ID:
        return ""
    return f": another member has group.instance.id {decision.config.group_instance_id}"
