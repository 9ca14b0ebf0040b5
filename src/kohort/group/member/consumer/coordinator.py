"""Finding the coordinator, losing it, and waiting before the next try."""

from __future__ import annotations

from kohort.group.member.consumer.session import MemberDraft
from kohort.group.member.events import HeartbeatDue, LookupDue, RetryDue
from kohort.group.values import replace


def look_up(draft: MemberDraft) -> None:
    """Ask the shell to find the coordinator, unless it does already or is to wait first."""
    session = draft.session
    if session.coordinator_known or session.looking_up:
        return
    if session.deadlines.get(LookupDue()) is None:
        draft.session = replace(session, looking_up=True)
        draft.find_coordinator = True


def forget(draft: MemberDraft) -> None:
    """The coordinator is not where it was; to the next one everything is said anew (L31)."""
    draft.session = replace(draft.session, coordinator_known=False, sent=None)


def found(draft: MemberDraft) -> None:
    """Heartbeats can be sent again."""
    draft.session = replace(draft.session, coordinator_known=True, looking_up=False)
    draft.cancel(LookupDue())


def look_up_later(draft: MemberDraft) -> None:
    """The look-up failed: try again after a wait (KIP-580)."""
    draft.session = replace(draft.session, looking_up=False, failures=draft.session.failures + 1)
    draft.start(LookupDue(), draft.config.backoff_ms(draft.session.failures))


def beat_soon(draft: MemberDraft) -> None:
    """Send a heartbeat as soon as that is possible."""
    draft.session = replace(draft.session, is_due=True)


def beat_later(draft: MemberDraft) -> None:
    """A heartbeat failed: a full one goes out after a wait, each time a longer one (KIP-580)."""
    session = draft.session = replace(
        draft.session, sent=None, is_due=True, failures=draft.session.failures + 1
    )
    draft.cancel(HeartbeatDue())
    draft.start(RetryDue(), draft.config.backoff_ms(session.failures))


def can_beat(draft: MemberDraft) -> bool:
    """Whether the heartbeat that is due can go out now: one in flight, none during a wait."""
    session = draft.session
    waits = session.deadlines.get(RetryDue()) is not None
    return session.coordinator_known and session.heartbeat is None and not waits
