"""Bugs of the tables for one run: a row does nothing, is removed, or has a negated guard."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, cast

from msgspec import Struct

from kohort.simulation.coverage import AnyRow, AnyTable, label, substituted
from kohort.values import replace

Plant: TypeAlias = Callable[[], AbstractContextManager[None]]


class Bug(Struct, frozen=True):
    """A bug, by name; `plant` returns a context in which it is there."""

    name: str
    plant: Plant


def row_bugs(table: AnyTable, index: int, harmless: Container[str]) -> Iterator[Bug]:
    """Yield the bugs of one row.

    Args:
        table: The table.
        index: Index of the row.
        harmless: Names of handlers that do nothing.
    """
    line = table.rows[index]
    if line.action in harmless:
        return
    name = label(table, line)
    if line.guard is None:
        ignored = replace(line, handler=_nothing, again=False)
        yield Bug(f"{name} (ignored)", replaced(table, index, ignored))
        return
    yield Bug(f"{name} (removed)", replaced(table, index, None))
    if not line.refuses:  # its guard returns the error
        guard = cast("Callable[[Any, object], bool]", line.guard)
        negated = replace(line, guard=_not(guard), to=table.states)
        yield Bug(f"{name} (negated)", replaced(table, index, negated))


def replaced(table: AnyTable, index: int, line: AnyRow | None) -> Plant:
    """Return a bug: another row instead of one, or none."""

    def plant() -> AbstractContextManager[None]:
        rows = list(table.rows)
        rows[index : index + 1] = [] if line is None else [line]
        return substituted(table, rows)

    return plant


def _not(guard: Callable[[Any, object], bool]) -> Callable[[Any, object], bool]:
    def negated(decision: Any, event: object) -> bool:
        return not guard(decision, event)

    return negated


def _nothing(_decision: object, _event: object) -> None:
    """Do nothing, in place of the row's action."""
