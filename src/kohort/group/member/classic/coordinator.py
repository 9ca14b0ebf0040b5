"""Finding the coordinator, and losing it."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.group.member import lookup
from kohort.group.member.classic.session import ClassicMemberDecision
from kohort.group.member.events import RETRY_DUE
from kohort.values import replace


def forget(decision: ClassicMemberDecision) -> None:
    """The coordinator is not where it was. What was sent to it will not be answered."""
    decision.session = replace(
        decision.session, coordinator_known=False, heartbeat=None, request=None
    )
    lookup.look_up(decision)


def retry_later(decision: ClassicMemberDecision) -> None:
    """Joining failed: try again after a wait, each time a longer one (KIP-580)."""
    decision.session = replace(decision.session, failures=decision.session.failures + 1)
    decision.start(RETRY_DUE, decision.config.backoff_ms(decision.session.failures))


# Answers that mean: this broker does not coordinate the group.
LOST = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
