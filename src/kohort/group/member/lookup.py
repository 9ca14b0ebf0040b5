"""Finding the coordinator, as every protocol does it (KIP-580)."""

from __future__ import annotations

from typing import TypeVar

from kohort.errors import ErrorCode
from kohort.group.member.events import LOOKUP_DUE, LookupFailed
from kohort.group.member.session import MemberDecision, Session
from kohort.values import replace

S = TypeVar("S", bound=Session)

_HOPELESS = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def look_up(decision: MemberDecision[S], _event: object = None) -> None:
    """Ask the shell to find the coordinator, unless a look-up or a wait is already running."""
    session = decision.session
    if session.coordinator_known or session.looking_up or decision.runs(LOOKUP_DUE):
        return
    decision.session = replace(session, looking_up=True)
    decision.find_coordinator = True


def look_up_later(decision: MemberDecision[S], _event: object = None) -> None:
    """Look for the coordinator after a wait, which grows each time.

    A running wait continues: otherwise a stream of answers would postpone its end forever.
    """
    if decision.runs(LOOKUP_DUE):
        return
    decision.session = replace(decision.session, looking_up=False)
    decision.back_off(LOOKUP_DUE)


def note_coordinator(decision: MemberDecision[S], _event: object = None) -> None:
    """Note that the coordinator is known: requests can be sent."""
    decision.session = replace(decision.session, coordinator_known=True, looking_up=False)
    decision.cancel(LOOKUP_DUE)


def is_hopeless(_decision: MemberDecision[S], event: LookupFailed) -> bool:
    """Return whether the look-up failed permanently."""
    return event.error_code in _HOPELESS


def end(decision: MemberDecision[S], event: LookupFailed) -> tuple[int, str]:
    """Return the error for a group without a coordinator for this member."""
    note_lookup_failed(decision, event)
    code = event.error_code if event.error_code is not None else ErrorCode.UNKNOWN_SERVER_ERROR
    why = f": {event.why}" if event.why else ""
    return code, f"no coordinator for group {decision.config.group_id}{why}"


def note_lookup_failed(decision: MemberDecision[S], _event: object = None) -> None:
    """Ignore a failed look-up: nothing needs the coordinator now."""
    decision.session = replace(decision.session, looking_up=False)
