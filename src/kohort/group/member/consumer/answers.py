"""What the coordinator answered to a heartbeat, and how a member goes on (L35, L36)."""

from __future__ import annotations

from collections.abc import Callable

from kohort.errors import ErrorCode, KafkaError, error_name
from kohort.group.member.consumer import client_assignors, coordinator, leave, reconcile, rhythm
from kohort.group.member.consumer.errors import Remedy, remedy
from kohort.group.member.consumer.session import NOT_JOINED, MemberDraft, MemberState
from kohort.values import replace
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse

Answer = ConsumerGroupHeartbeatResponse


def says(wanted: Remedy) -> Callable[[MemberDraft, Answer], bool]:
    """Return a guard: whether the error of an answer has this remedy."""

    def guard(draft: MemberDraft, answer: Answer) -> bool:
        return remedy(answer.error_code, is_member=draft.session.is_member) is wanted

    guard.__name__ = f"says_{wanted.name.lower()}"
    return guard


def is_nonsense(draft: MemberDraft, answer: Answer) -> bool:
    """Whether it claims an epoch that no member has, or one that is over."""
    lowest = max(draft.session.epoch, NOT_JOINED + 1)
    return answer.error_code == ErrorCode.NONE and answer.member_epoch < lowest


def _note(draft: MemberDraft, answer: Answer) -> None:
    """Take over who we are and when to beat next."""
    session, config = draft.session, draft.config
    interval_ms = answer.heartbeat_interval_ms
    if interval_ms <= 0:
        interval_ms = config.heartbeat_interval_ms
    moments = 0
    if not session.is_member:
        moments = rhythm.AFTER_JOIN
    elif reconcile.is_news(session, answer.assignment):
        moments = rhythm.AFTER_CHANGE
    draft.session = replace(
        session,
        member_id=answer.member_id or session.member_id,  # version 0 lets the broker choose
        epoch=answer.member_epoch,
        interval_ms=interval_ms,
        failures=0,
    )
    rhythm.begin(draft, moments=moments)
    client_assignors.note_answer(draft, answer)


def note_answer(draft: MemberDraft, answer: Answer) -> None:
    """Still a member, and about to leave."""
    _note(draft, answer)


def note_newer_target(draft: MemberDraft, answer: Answer) -> None:
    """L33: what is given now is looked at when the present change is acknowledged."""
    _note(draft, answer)
    reconcile.note_target(draft, answer.assignment)


def follow(draft: MemberDraft, answer: Answer) -> None:
    """L32, L33: a member; it reconciles what it is given, unless the application is called now."""
    note_newer_target(draft, answer)
    rests = draft.state is MemberState.STABLE and reconcile.is_reconciled(draft.session)
    if draft.session.callback is None and not rests:
        reconcile.begin(draft)


def rejoin(draft: MemberDraft, answer: Answer) -> None:
    """L35: we were removed."""
    leave.fence(draft, f"the coordinator answered {error_name(answer.error_code)}")


def lose_membership(draft: MemberDraft, _answer: Answer) -> None:
    """L35: removed while leaving."""
    leave.lose_membership(draft)


def try_again_later(draft: MemberDraft, _answer: Answer) -> None:
    """L36: the coordinator is busy, or talks nonsense."""
    coordinator.beat_later(draft)


def tell_and_try_again(draft: MemberDraft, answer: Answer) -> None:
    """L36: a topic may not be read; somebody may allow it while we wait."""
    draft.raised.append(KafkaError(answer.error_code, answer.error_message or ""))
    coordinator.beat_later(draft)


def give_up(draft: MemberDraft, answer: Answer) -> None:
    """L36: nothing that we could do would help."""
    what = answer.error_message or f"cannot be in group {draft.config.group_id}"
    leave.fail(draft, answer.error_code, what)
