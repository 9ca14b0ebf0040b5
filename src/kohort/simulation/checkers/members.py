"""Shared parts of the checkers of members of all protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from kohort.errors import ErrorCode, KafkaError
from kohort.group.events import MemberStateChanged
from kohort.group.member.events import LOOKUP_DUE, MemberDeadline, RejoinAsked
from kohort.group.member.session import Session
from kohort.simulation.groups.facts import Refused, Told
from kohort.simulation.rules import rule

if TYPE_CHECKING:
    from kohort.simulation.groups.base import BaseWorld

S = TypeVar("S", bound=Session)
# Compares a member before and after an event, and returns what is wrong.
Look: TypeAlias = Callable[[Told, S, S], "str | None"]

MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
WAIT = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT)
_LEAVES = frozenset({"LEAVING", "PREPARE_LEAVING"})


def look_at(told: Told, looks: Mapping[type, Look[S]]) -> str | None:
    """Run the check for an event, which compares the member before and after it."""
    look = looks.get(type(told.event))
    if look is None:
        return None
    was = cast("S", told.before)
    complaint = look(told, was, cast("S", told.effects.session))
    if complaint is None:
        return None
    return f"{told.client.name}, {was.state.name}, {type(told.event).__name__}: {complaint}"


def runs(session: Session, deadline: MemberDeadline) -> bool:
    """Return whether a deadline is running."""
    return session.deadlines.get(deadline) is not None


def counts_anew(told: Told, after: Session, deadline: MemberDeadline, lasts_ms: int) -> bool:
    """Return whether this event restarted a deadline."""
    due = after.deadlines.get(deadline)
    return due is not None and due >= told.now + lasts_ms


def due_now(told: Told, was: Session) -> MemberDeadline | None:
    """Return the deadline that a tick handles, None if nothing is due."""
    earliest = was.deadlines.next()
    return None if earliest is None or earliest[0] > told.now else earliest[1]


def seeks(told: Told, after: Session) -> bool:
    """Return whether the member looks for the coordinator, or soon will."""
    return told.effects.find_coordinator or after.looking_up or runs(after, LOOKUP_DUE)


def sends(told: Told, kind: type) -> bool:
    """Return whether the member sends a request of a class."""
    return any(isinstance(each.request, kind) for each in told.effects.sends)


def raises(told: Told, code: int) -> bool:
    """Return whether the application gets an error with a code."""
    errors = told.effects.raised
    return any(isinstance(each, KafkaError) and each.code == code for each in errors)


def says_it_leaves(told: Told) -> bool:
    """Return whether the member reports that it leaves."""
    return any(
        isinstance(each, MemberStateChanged) and each.after in _LEAVES
        for each in told.effects.observed
    )


@rule(
    "L2",
    "An application may subscribe, unsubscribe, poll and close until it has closed or its member"
    " has failed; nothing else refuses these calls.",
    Refused,
)
def calls_are_allowed(_world: BaseWorld, refused: Refused) -> str | None:
    """Check refused calls."""
    client = refused.client
    is_over = client.application.closing or client.machine.state.name in client.protocol.fatal
    if is_over or isinstance(refused.event, RejoinAsked):
        return None
    state = client.machine.state.name
    return f"{client.name} is refused {type(refused.event).__name__} in {state}, and is not closed"
