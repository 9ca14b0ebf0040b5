"""Finding the coordinator, losing it, and waiting before the next try."""

from __future__ import annotations

from kohort.group.member.consumer.session import MemberDraft
from kohort.group.member.events import HEARTBEAT_DUE, RETRY_DUE
from kohort.values import replace


def forget(draft: MemberDraft) -> None:
    """The coordinator is not where it was; to the next one everything is said anew (L31)."""
    draft.session = replace(draft.session, coordinator_known=False, sent=None)


def beat_soon(draft: MemberDraft) -> None:
    """Send a heartbeat as soon as that is possible."""
    draft.session = replace(draft.session, is_due=True)


def beat_later(draft: MemberDraft) -> None:
    """A heartbeat failed: a full one goes out after a wait, each time a longer one (KIP-580)."""
    session = draft.session = replace(
        draft.session, sent=None, is_due=True, failures=draft.session.failures + 1
    )
    draft.cancel(HEARTBEAT_DUE)
    draft.start(RETRY_DUE, draft.config.backoff_ms(session.failures))


def can_beat(draft: MemberDraft) -> bool:
    """Whether the heartbeat that is due can go out now: one in flight, none during a wait."""
    session = draft.session
    waits = session.deadlines.get(RETRY_DUE) is not None
    return session.coordinator_known and session.heartbeat is None and not waits
