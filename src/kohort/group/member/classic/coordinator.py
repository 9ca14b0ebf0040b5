"""Finding the coordinator, and losing it."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.member import lookup
from kohort.group.member.classic.session import MemberDraft
from kohort.group.member.events import RETRY_DUE
from kohort.values import replace


def forget(draft: MemberDraft) -> None:
    """The coordinator is not where it was. What was sent to it will not be answered."""
    draft.session = replace(draft.session, coordinator_known=False, heartbeat=None, request=None)
    lookup.look_up(draft)


def retry_later(draft: MemberDraft) -> None:
    """Joining failed: try again after a wait, each time a longer one (KIP-580)."""
    draft.session = replace(draft.session, failures=draft.session.failures + 1)
    draft.start(RETRY_DUE, draft.config.backoff_ms(draft.session.failures))


# Answers that mean: this broker does not coordinate the group.
LOST = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
