"""Helpers for the rows of all members' tables."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from kohort.errors import LocalProtocolError
from kohort.group.machine import Decision, Row, row
from kohort.group.member.events import POLL_OVERDUE, Polled, Subscribed
from kohort.group.member.session import MemberDecision, Session
from kohort.values import replace

T = TypeVar("T", bound=Enum)
D = TypeVar("D", bound=Decision[Enum])
E = TypeVar("E")
S = TypeVar("S", bound=Session)


def others(*states: T) -> tuple[T, ...]:
    """Return all states of a machine except the given ones; at least one is required."""
    return tuple(state for state in type(states[0]) if state not in states)


def only_in(states: tuple[T, ...], *triggers: type[object]) -> tuple[Row[T, D], ...]:
    """Declare the only states in which triggers can occur; their other cells are impossible.

    The machine waits for these triggers only in those states. A trigger in another state is a
    bug of this package and raises AssertionError.
    """
    return tuple(row(others(*states), trigger, never) for trigger in triggers)


def never(decision: Decision[Enum], event: object) -> None:
    """Raise an error: the event cannot occur in this state."""
    raise AssertionError(f"{type(event).__name__} in {decision.state.name}")


def both(first: Callable[[D, E], None], second: Callable[[D, E], None]) -> Callable[[D, E], None]:
    """Return a handler that runs two handlers in order; its name combines theirs."""

    def handler(decision: D, event: E) -> None:
        first(decision, event)
        second(decision, event)

    handler.__name__ = f"{first.__name__}, {second.__name__}"
    return handler


# --------------------------------------------------------------------- handlers of all members


def pass_over(_decision: Decision[Enum], _event: object) -> None:
    """Do nothing."""


def note_poll(decision: MemberDecision[S], _call: Polled) -> None:
    """Note that the application is alive (KIP-62)."""
    decision.start(POLL_OVERDUE, decision.config.max_poll_interval_ms)


def note_topics(decision: MemberDecision[S], call: Subscribed) -> None:
    """Store the subscription; a stable member compares it with the one of its last join."""
    if not call.topics:
        raise LocalProtocolError("a subscription to no topics is an unsubscribe")
    decision.session = replace(decision.session, topics=call.topics)
