"""The effects of a member's decision in words, and cases that are common to all members."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from kohort.errors import ErrorCode, LocalProtocolError
from kohort.group.effects import Effects
from kohort.group.machine import Deadlines
from kohort.group.member.events import (
    CallbackDone,
    Closing,
    CoordinatorKnown,
    CoordinatorLost,
    LookupFailed,
    MemberEvent,
    Polled,
    RejoinAsked,
    Subscribed,
    Tick,
    Unsubscribed,
)
from kohort.values import replace

NOBODY_KNOWS = 999
FLIGHTS, DELAYS = frozenset({"flights"}), frozenset({"delays"})


class Session(Protocol):
    """The fields that the sessions of all members have."""

    @property
    def state(self) -> Any: ...

    @property
    def deadlines(self) -> Deadlines[Any]: ...


S = TypeVar("S", bound=Session)


class Member(Protocol[S]):
    """The methods that all members have."""

    @property
    def session(self) -> S: ...

    def decide(self, event: MemberEvent, now: int) -> Effects[S]: ...

    def install(self, session: S) -> None: ...


class Case(NamedTuple):
    """An event with its name in the table."""

    name: str
    event: MemberEvent


def common_cases() -> Iterator[Case]:
    """Yield the events that can occur for any member at any time."""
    yield Case("subscribes to the same", Subscribed(FLIGHTS))
    yield Case("subscribes to another topic", Subscribed(DELAYS))
    yield Case("unsubscribes", Unsubscribed())
    yield Case("closes", Closing())
    yield Case("polls", Polled())
    yield Case("asks for a rebalance", RejoinAsked("why"))
    yield Case("coordinator found", CoordinatorKnown())
    yield Case("coordinator lost", CoordinatorLost())
    yield Case("lookup failed", LookupFailed())
    yield Case("lookup refused", LookupFailed(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    yield Case("the end of a call nobody made", CallbackDone(NOBODY_KNOWS))


def outcome(member: Member[S], event: MemberEvent, now: int, standing: Callable[[S], str]) -> str:
    """Run an event and describe all its effects in one line."""
    try:
        effects = member.decide(event, now)
    except LocalProtocolError:
        return "is not allowed"
    return "; ".join(parts(member.session, effects, standing))


def clocks(
    member: Member[S], another: Callable[[], Member[S]], standing: Callable[[S], str]
) -> dict[str, str]:
    """Let each timer of a member expire alone, in a copy, so that no other fires before it."""
    found: dict[str, str] = {}
    for key, due in sorted(member.session.deadlines.due_times().items()):
        alone = another()
        only: Deadlines[Any] = Deadlines()
        alone.install(replace(member.session, deadlines=only.set(key, due)))  # type: ignore[type-var]  # sessions are structs, which a protocol cannot say
        found[f"{key.kind} is due"] = outcome(alone, Tick(), due, standing)
    return found


def parts(before: S, effects: Effects[S], standing: Callable[[S], str]) -> Iterator[str]:
    """Yield the next state, then all other changes; `standing` describes the membership."""
    after = effects.session
    yield after.state.name
    if standing(after) != standing(before):
        yield standing(after)
    for send in effects.sends:
        yield f"sends {type(send.request).__name__.removesuffix('Request')}"
    for call in effects.callbacks:
        yield f"calls {call.change.name} {len(call.partitions)}"
    yield from ("starts an assignment" for _ in effects.jobs)
    if effects.find_coordinator:
        yield "looks for the coordinator"
    for error in effects.raised:
        yield f"raises {getattr(error, 'name', type(error).__name__)}"
    old, new = before.deadlines.due_times(), after.deadlines.due_times()
    yield from sorted(f"starts {key.kind}" for key in new if new[key] != old.get(key))
    yield from sorted(f"stops {key.kind}" for key in old if key not in new)
    yield from (f"tells {fact.kind}" for fact in effects.observed)
