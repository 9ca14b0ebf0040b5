"""The steps of a program being built, and helpers for the methods that add them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

from kohort.streams.app.serdes import Serde, SerdeLike, serde_of
from kohort.streams.app.steps import Step, check_name
from kohort.streams.errors import BuildError

V = TypeVar("V")
T = TypeVar("T")

NoState: TypeAlias = Any
"""Marks missing state."""

OnError: TypeAlias = Literal["stop", "skip", "dead-letter"]
"""What to do with a record on which a deserializer or a function raises."""


class Plan:
    """The steps of a program under construction.

    Attributes:
        name: Name of the application.
        steps: The steps so far.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[Step] = []
        self._names: set[str] = set()

    @property
    def next_number(self) -> int:
        """The number of the next step."""
        return len(self.steps)

    def next_step(self, kind: str, name: str | None) -> tuple[str, int]:
        """Return the name and number of the next step; both depend on the program alone.

        Raises:
            BuildError: The name is taken, or invalid in a topic name.
        """
        label = f"{kind}-{self.next_number}" if name is None else check_name(f"a {kind} step", name)
        if label in self._names:
            raise BuildError(f"two steps have the name {label!r}; give one of them another name=")
        return label, self.next_number

    def add(self, step: Step) -> None:
        """Add a step."""
        self._names.add(step.name)
        self.steps.append(step)


def optional(given: SerdeLike[T] | None, where: str) -> Serde[T] | None:
    """Return an optional serde."""
    return None if given is None else serde_of(given, where)


def needed(known: Serde[V] | None, given: SerdeLike[V] | None, where: str) -> Serde[V]:
    """Return the given serde, or else the known one.

    Raises:
        BuildError: There is no serde.
    """
    if given is not None:
        return serde_of(given, where)
    if known is None:
        raise BuildError(
            f'{where} needs the serde of its values: add value="json" (or another one) to the map,'
            " flat_map or join before it, or here"
        )
    return known


def no_state() -> NoState:
    """Return the marker for missing state: a reduction starts with a value."""
    return None


def reducing(function: Callable[[V, V], V | Awaitable[V]]) -> Callable[[V, V], V | Awaitable[V]]:
    """Turn a reducing function into a folding one: the first value becomes the state."""
    return lambda state, each: each if state is None else function(state, each)


def plus_one(count: int, _: object) -> int:
    """Count."""
    return count + 1
