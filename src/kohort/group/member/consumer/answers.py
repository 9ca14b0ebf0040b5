"""What the coordinator answered to a heartbeat, and how a member goes on (L35, L36)."""

from __future__ import annotations

from collections.abc import Callable

from kohort.errors import ErrorCode, KafkaError, error_name
from kohort.group.member.consumer import client_assignors, coordinator, leave, reconcile, rhythm
from kohort.group.member.consumer.errors import Remedy, remedy
from kohort.group.member.consumer.session import NOT_JOINED, ConsumerMemberDecision, MemberState
from kohort.values import replace
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse

Answer = ConsumerGroupHeartbeatResponse


def says(wanted: Remedy) -> Callable[[ConsumerMemberDecision, Answer], bool]:
    """Return a guard: whether the error of an answer has this remedy."""

    def guard(decision: ConsumerMemberDecision, answer: Answer) -> bool:
        return remedy(answer.error_code, is_member=decision.session.is_member) is wanted

    guard.__name__ = f"says_{wanted.name.lower()}"
    return guard


def is_nonsense(decision: ConsumerMemberDecision, answer: Answer) -> bool:
    """Whether it claims an epoch that no member has, or one that is over."""
    lowest = max(decision.session.epoch, NOT_JOINED + 1)
    return answer.error_code == ErrorCode.NONE and answer.member_epoch < lowest


def _note(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """Take over who we are and when to beat next."""
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


def note_answer(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """Still a member, and about to leave."""
    _note(decision, answer)


def note_newer_target(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """L33: what is given now is looked at when the present change is acknowledged."""
    _note(decision, answer)
    reconcile.note_target(decision, answer.assignment)


def follow(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """L32, L33: a member; it reconciles what it is given, unless the application is called now."""
    note_newer_target(decision, answer)
    rests = decision.state is MemberState.STABLE and reconcile.is_reconciled(decision.session)
    if decision.session.callback is None and not rests:
        reconcile.begin(decision)


def rejoin(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """L35: we were removed."""
    leave.fence(decision, f"the coordinator answered {error_name(answer.error_code)}")


def lose_membership(decision: ConsumerMemberDecision, _answer: Answer) -> None:
    """L35: removed while leaving."""
    leave.lose_membership(decision)


def try_again_later(decision: ConsumerMemberDecision, _answer: Answer) -> None:
    """L36: the coordinator is busy, or talks nonsense."""
    coordinator.beat_later(decision)


def tell_and_try_again(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """L36: a topic may not be read; somebody may allow it while we wait."""
    decision.raised.append(KafkaError(answer.error_code, answer.error_message or ""))
    coordinator.beat_later(decision)


def give_up(decision: ConsumerMemberDecision, answer: Answer) -> None:
    """L36: nothing that we could do would help."""
    what = answer.error_message or f"cannot be in group {decision.config.group_id}"
    leave.fail(decision, answer.error_code, what)
