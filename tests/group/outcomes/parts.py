"""What a member's decision led to, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from kohort.group.effects import Effects
from kohort.group.machine import Deadlines


class Session(Protocol):
    """What the sessions of all members have."""

    @property
    def state(self) -> Any: ...

    @property
    def deadlines(self) -> Deadlines[Any]: ...


S = TypeVar("S", bound=Session)


def parts(before: S, effects: Effects[S], standing: Callable[[S], str]) -> Iterator[str]:
    """The next state, then everything that is not as it was; `standing` tells the membership."""
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
