"""A planted bug, and how it gets into a table: by changed rows, never by changed files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct, field

from kohort.group.assignors import Assignor
from kohort.simulation.coverage import AnyRow, AnyTable, substituted
from kohort.values import replace

if TYPE_CHECKING:
    from kohort.simulation.groups.application import Application

Plant: TypeAlias = Callable[[], AbstractContextManager[None]]
# Handlers get the decision and the event of their own table; here any of them.
AnyHandler: TypeAlias = Callable[[Any, Any], None]
AnyGuard: TypeAlias = Callable[[Any, Any], bool]


class Bug(Struct, frozen=True, kw_only=True):
    """A bug written by hand.

    Attributes:
        name: Its name.
        text: What is wrong, in a sentence.
        plant: Returns a context in which the tables have it.
        protocol: Protocol of the groups in which it shows.
        assignors: Assignors that have it, by name.
        application: The class of applications that have it; None: the usual one.
        kinds: Faults that provoke it; empty: any.
    """

    name: str
    text: str
    plant: Plant = nullcontext
    protocol: str = "classic"
    assignors: Mapping[str, Assignor] = field(default_factory=dict)
    application: type[Application] | None = None


BUGS: list[Bug] = []


def bug(name: str, text: str, plant: Plant, protocol: str = "classic") -> None:
    """Add a bug of a table."""
    BUGS.append(Bug(name=name, text=text, plant=plant, protocol=protocol))


def changed(
    table: object, trigger: type[object], action: str, change: Callable[[AnyRow], AnyRow]
) -> Plant:
    """Return a function that changes the rows with a trigger and an action.

    Raises:
        LookupError: No row has them, so there would be no bug.
    """
    found = cast("AnyTable", table)

    def plant() -> AbstractContextManager[None]:
        hit = [r.trigger is trigger and r.action == action for r in found.rows]
        if not any(hit):
            raise LookupError(f"{found.name}: no row {trigger.__name__} -> {action}")
        rows = [change(r) if h else r for r, h in zip(found.rows, hit, strict=True)]
        return substituted(found, rows)

    return plant


def ignored(table: object, trigger: type[object], action: str) -> Plant:
    """Plant: the row does nothing."""
    return changed(table, trigger, action, lambda line: replace(line, handler=_nothing))


def unguarded(table: object, trigger: type[object], action: str, guard: AnyGuard) -> Plant:
    """Plant: the row, where it has a guard, asks another one."""

    def change(line: AnyRow) -> AnyRow:
        return line if line.guard is None else replace(line, guard=guard)

    return changed(table, trigger, action, change)


def instead(table: object, trigger: type[object], action: str, handler: AnyHandler) -> Plant:
    """Plant: the row does something else, and may end anywhere."""

    def change(line: AnyRow) -> AnyRow:
        states = cast("AnyTable", table).states
        return replace(line, handler=handler, to=states, again=False)

    return changed(table, trigger, action, change)


def afterwards(table: object, trigger: type[object], action: str, spoil: AnyHandler) -> Plant:
    """Plant: the row does what it should, and then breaks something."""

    def change(line: AnyRow) -> AnyRow:
        handler = line.handler

        def both(decision: Any, event: Any) -> None:
            handler(decision, event)
            spoil(decision, event)

        return replace(line, handler=both, to=cast("AnyTable", table).states)

    return changed(table, trigger, action, change)


def never(_decision: object, _event: object) -> bool:
    """A guard that never holds."""
    return False


def _nothing(_decision: object, _event: object) -> None:
    """Do nothing, in place of the row's action."""
