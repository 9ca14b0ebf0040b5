"""Finding the coordinator, and losing it."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.member.classic.session import MemberDraft
from kohort.group.member.events import LookupDue, RetryDue
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
    """The coordinator is not where it was. What was sent to it will not be answered."""
    draft.session = replace(draft.session, coordinator_known=False, heartbeat=None, request=None)
    look_up(draft)


def found(draft: MemberDraft) -> None:
    """Requests can be sent again."""
    draft.session = replace(draft.session, coordinator_known=True, looking_up=False)
    draft.cancel(LookupDue())


def look_up_later(draft: MemberDraft) -> None:
    """The look-up failed: try again after a wait."""
    draft.session = replace(draft.session, looking_up=False, failures=draft.session.failures + 1)
    draft.start(LookupDue(), draft.config.backoff_ms(draft.session.failures))


def retry_later(draft: MemberDraft) -> None:
    """Joining failed: try again after a wait, each time a longer one (KIP-580)."""
    draft.session = replace(draft.session, failures=draft.session.failures + 1)
    draft.start(RetryDue(), draft.config.backoff_ms(draft.session.failures))


# Answers that mean: this broker does not coordinate the group.
LOST = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
