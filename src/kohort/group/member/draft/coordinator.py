"""Finding the coordinator, and losing it (D21, D23)."""

from __future__ import annotations

from kohort.group.member.draft.session import MemberChange
from kohort.group.member.events import LookupDue
from kohort.group.values import replace


def look_up(change: MemberChange) -> None:
    """Ask the shell to find the coordinator, unless it does already or is to wait first."""
    session = change.session
    if session.coordinator_known or session.looking_up or change.runs(LookupDue()):
        return
    change.session = replace(session, looking_up=True)
    change.find_coordinator = True


def look_up_later(change: MemberChange) -> None:
    """Look for the coordinator after a wait, each time a longer one."""
    failures = change.session.failures + 1
    change.session = replace(change.session, looking_up=False, failures=failures)
    change.start(LookupDue(), change.config.backoff_ms(failures))


def forget(change: MemberChange) -> None:
    """The coordinator is not where it was. What was sent to it will not be answered."""
    change.session = replace(change.session, coordinator_known=False, heartbeat=None, request=None)


def found(change: MemberChange) -> None:
    """Requests can be sent again."""
    change.session = replace(change.session, coordinator_known=True, looking_up=False)
    change.cancel(LookupDue())
