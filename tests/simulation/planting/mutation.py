"""Mechanical bugs: every row of every table ignored or retargeted, or its guard negated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from kohort.group.machine import Decision
from kohort.simulation.coverage import TABLES, AnyRow, AnyTable, is_never, label, substituted
from kohort.values import replace

# Handlers that are empty.
_DOES_NOTHING = frozenset({"ignore", "keep", "pass_over", "spare"})
Handler: TypeAlias = Callable[[Decision[Enum], object], None]


class Mutant(Struct, frozen=True):
    """One row, changed.

    Attributes:
        table: The table.
        index: Index of the row.
        kind: "ignored", "negated" or "retargeted".
    """

    table: AnyTable
    index: int
    kind: str

    @property
    def row(self) -> AnyRow:
        """The row as it is."""
        return self.table.rows[self.index]

    @property
    def row_label(self) -> str:
        """The row's name."""
        return label(self.table, self.row)

    @property
    def name(self) -> str:
        """Its name in reports."""
        other = _other_handler(self.table, self.index) if self.kind == "retargeted" else None
        instead = f": {other.__name__}" if other is not None else ""
        return f"{self.row_label} ({self.kind}{instead})"

    @property
    def rows_asked(self) -> list[str]:
        """Names of the rows at which the change can show, the row itself first.

        With a negated guard also the rows after it, whose events this row takes now.
        """
        rows = [self.row_label]
        if self.kind == "negated":
            rows += [
                label(self.table, each)
                for each in self.table.rows[self.index + 1 :]
                if each.trigger is self.row.trigger and set(each.states) & set(self.row.states)
            ]
        return rows

    def planted(self) -> AbstractContextManager[None]:
        """Return a context in which the table has this bug."""
        rows = list(self.table.rows)
        rows[self.index] = _CHANGES[self.kind](self.table, self.index)
        return substituted(self.table, rows)


def mutants() -> Iterator[Mutant]:
    """Yield every mechanical bug; rows that must never be taken have none.

    Rows that do nothing are not ignored, as that would change nothing.
    """
    for table in TABLES:
        for index, line in enumerate(table.rows):
            if is_never(line):
                continue
            if line.action not in _DOES_NOTHING:
                yield Mutant(table, index, "ignored")
            if line.guard is not None:
                yield Mutant(table, index, "negated")
            if _other_handler(table, index) is not None:
                yield Mutant(table, index, "retargeted")


def _nothing(_decision: Decision[Enum], _event: object) -> None:
    """Do nothing, in place of the row's action."""


def _ignored(table: AnyTable, index: int) -> AnyRow:
    return replace(table.rows[index], handler=_nothing, again=False)


def _negated(table: AnyTable, index: int) -> AnyRow:
    line = table.rows[index]
    guard = line.guard
    assert guard is not None

    def negated(decision: Decision[Enum], event: object) -> bool:
        return not guard(decision, event)

    return replace(line, guard=negated)


def _retargeted(table: AnyTable, index: int) -> AnyRow:
    """Do the action of the next other row with the same trigger, ending in any state."""
    handler = _other_handler(table, index)
    assert handler is not None
    return replace(table.rows[index], handler=handler, to=table.states, again=False)


def _other_handler(table: AnyTable, index: int) -> Handler | None:
    line = table.rows[index]
    order = (*table.rows[index + 1 :], *table.rows[:index])
    for each in order:
        if each.trigger is line.trigger and each.action != line.action and not is_never(each):
            return each.handler
    return None


_CHANGES: dict[str, Callable[[AnyTable, int], AnyRow]] = {
    "ignored": _ignored,
    "negated": _negated,
    "retargeted": _retargeted,
}
