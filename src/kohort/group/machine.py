"""The form of every machine of this package: a table of rows, with effects as its only output.

`decide(event, now)` returns `Effects` and changes nothing. The *shell* that drives a machine
appends the effects' records to a log, applies them, installs the session and only then releases
replies and sends. Each machine is one `Table`: in this state, on this trigger, if this condition
holds, run that handler. The same table is executed, drawn in the diagrams and enumerated by the
tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from immutables import Map
from msgspec import Struct

from kohort.errors import LocalProtocolError
from kohort.group.heap import drop, put

if TYPE_CHECKING:
    from kohort.group.heap import Node


class State(Enum):
    """A state of a machine, with a fast hash: every event looks up table cells by state."""

    __hash__ = object.__hash__  # the `__hash__` of `Enum` is slow Python code


S = TypeVar("S", bound=Enum)
S_co = TypeVar("S_co", bound=Enum, covariant=True)
E = TypeVar("E")


class Decision(Protocol[S_co]):
    """The value that handlers work on: the machine's state, and the effects collected so far."""

    @property
    def state(self) -> S_co:
        """The machine's state, as it will be once the effects are installed."""


D = TypeVar("D", bound="Decision[Enum]")


class Refusing(Decision[S_co], Protocol[S_co]):
    """A decision that can refuse a request; the table sets `why` before it calls `refuse`.

    Attributes:
        why: The error that the guard of the refusing row has found.
    """

    why: object

    def refuse(self, arrived: object) -> None:
        """Answer a request with the error in `why`."""


N = TypeVar("N", bound="Refusing[Enum]")


class Row(Struct, Generic[S, D], frozen=True):
    """One line of a table.

    Attributes:
        states: The states in which it applies.
        trigger: Class of the request or event that it handles.
        handler: Changes the decision.
        to: The states it may end in; empty: the state stays.
        guard: Whether the row applies; None: always. The first row that applies is taken.
        rule: The rules it follows, by their ids (docs/internals/rules.md) or KIPs.
        again: Whether the state that the row ended in then handles the trigger too.
        refuses: Whether the guard returns an error for the row to answer with; see `refuse`.
    """

    states: tuple[S, ...]
    trigger: type[object]
    handler: Callable[[D, object], None]
    to: tuple[S, ...] = ()
    guard: Callable[[D, object], object] | None = None
    rule: str = ""
    again: bool = False
    refuses: bool = False

    @property
    def action(self) -> str:
        """Name of the handler."""
        return self.handler.__name__

    @property
    def condition(self) -> str:
        """Name of the guard, empty when there is none."""
        return self.guard.__name__ if self.guard else ""


def row(
    states: S | tuple[S, ...],
    trigger: type[E],
    handler: Callable[[D, E], None],
    *,
    to: S | tuple[S, ...] = (),
    when: Callable[[D, E], bool] | None = None,
    rule: str = "",
    again: bool = False,
) -> Row[S, D]:
    """Create a row; the arguments are the attributes of `Row`, with one state or a tuple."""
    return Row(
        states=states if isinstance(states, tuple) else (states,),
        trigger=trigger,
        handler=cast("Callable[[D, object], None]", handler),
        to=to if isinstance(to, tuple) else (to,),
        guard=cast("Callable[[D, object], object] | None", when),
        rule=rule,
        again=again,
    )


def refuse(
    states: S | tuple[S, ...],
    trigger: type[object],
    why: Callable[[N, E], object | None],
    *,
    rule: str = "",
) -> Row[S, N]:
    """Create a row that refuses a request and keeps the state.

    Args:
        states: The states in which it applies.
        trigger: Class of the request.
        why: Returns the error to answer with; None: the row does not apply.
        rule: The rules it follows.
    """
    return Row(
        states=states if isinstance(states, tuple) else (states,),
        trigger=trigger,
        handler=_refuse,
        guard=cast("Callable[[N, object], object]", why),
        rule=rule,
        refuses=True,
    )


def _refuse(decision: Refusing[Enum], event: object) -> None:
    decision.refuse(event)


_refuse.__name__ = "refuse"  # as documents and reports call it


def never(_decision: object, event: object) -> None:
    """Raise an error: the handler for triggers that cannot occur but that the table must list."""
    raise AssertionError(f"{type(event).__name__} came in a state that has none: {event}")


class TableError(Exception):
    """A table has a gap, or a row ended in an undeclared state. A bug in this package."""


def cells_of(rows: Iterable[Row[S, D]]) -> dict[tuple[S, type[object]], tuple[Row[S, D], ...]]:
    """Return the rows of each state and trigger, in the order in which they are tried."""
    cells: dict[tuple[S, type[object]], tuple[Row[S, D], ...]] = {}
    for line in rows:
        for state in line.states:
            cell = state, line.trigger
            cells[cell] = (*cells.get(cell, ()), line)
    return cells


class Table(Generic[S, D]):
    """The rows of one machine, checked to be complete.

    Attributes:
        name: Name for diagrams and errors.
        states: All states.
        rows: The rows.
        total: Triggers that every state answers.
        local: Triggers that a state without a row refuses.
        cells: The rows of each state and trigger, in the order in which they are tried.
    """

    def __init__(
        self,
        name: str,
        states: type[S],
        rows: Iterable[Row[S, D]],
        *,
        total: Iterable[type[object]],
        local: Iterable[type[object]] = (),
    ) -> None:
        """Check and index the rows.

        Args:
            name: Name for diagrams and errors.
            states: The enum of all states.
            rows: The rows, in the order in which their guards are evaluated.
            total: Triggers from the wire, the clock or a job: every state must handle them.
            local: Triggers that are calls of the user; a state without a row refuses them.

        Raises:
            TableError: A state does not answer a trigger of `total`, a row is never reached, or
                a row has a trigger that is not declared.
        """
        self.name = name
        self.states = tuple(states)
        self.rows = tuple(rows)
        self.total = tuple(total)
        self.local = tuple(local)
        self.cells = cells_of(self.rows)
        self._check()

    def _check(self) -> None:
        for (state, _), cell in self.cells.items():
            for line, after in pairwise(cell):
                if line.guard is None:
                    raise TableError(f"{self.name}: {_place(state, after)} is never reached")
        undeclared = {line.trigger for line in self.rows} - {*self.total, *self.local}
        if undeclared:
            raise TableError(f"{self.name}: undeclared triggers {sorted(map(str, undeclared))}")
        for state in self.states:
            for trigger in self.total:
                cell = self.cells.get((state, trigger), ())
                if not cell or cell[-1].guard is not None:
                    raise TableError(
                        f"{self.name}: {state.name} does not answer {trigger.__name__}"
                    )

    def run(self, decision: D, trigger: type[object], event: object) -> Row[S, D]:
        """Run the handler of the row that applies, and return the last row that ran.

        Raises:
            LocalProtocolError: No row: the call is not allowed in this state.
            TableError: The row ended in a state that it does not declare.
        """
        before = decision.state
        for line in self.cells.get((before, trigger), ()):  # type: ignore[arg-type]  # decisions of this table have its states
            found = line.guard is None or line.guard(decision, event)
            if found:
                if line.refuses:
                    decision.why = found  # type: ignore[attr-defined]  # `refuse` creates such rows only for `Refusing`
                line.handler(decision, event)
                after = decision.state
                if after is not before and after not in line.to:
                    raise TableError(f"{self.name}: {_place(before, line)} ended in {after.name}")
                return self.run(decision, trigger, event) if line.again else line
        raise LocalProtocolError(f"{self.name}: {trigger.__name__} is not allowed in {before.name}")


def _place(state: Enum, line: Row[S, D]) -> str:
    return f"{line.action} ({state.name}, {line.trigger.__name__})"


# -------------------------------------------------------------------------------------- deadlines

K = TypeVar("K", bound=tuple[str, ...])


class Deadlines(Struct, Generic[K], frozen=True):
    """The due time of each key; an immutable value.

    Setting, cancelling and reading the next one are O(log n), amortised.

    Keys are tuples of strings that tell their events apart; equal times are served in key order.
    """

    # For each key, its due time, and its time in the heap (never later).
    _due: Map[K, tuple[int, int]] = Map()
    _heap: Node | None = None

    def __len__(self) -> int:
        return len(self._due)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deadlines) and self.due_times() == other.due_times()

    def __hash__(self) -> int:
        return hash(frozenset(self.due_times().items()))

    def due_times(self) -> dict[K, int]:
        """Return the due time of each key."""
        return {key: due for key, (due, _) in self._due.items()}

    def get(self, key: K) -> int | None:
        """Return the due time of a key, None if it is not set."""
        entry = self._due.get(key)
        return entry[0] if entry else None

    @property
    def earliest(self) -> int | None:
        """The earliest time."""
        return None if self._heap is None else self._heap[0]

    def next(self) -> tuple[int, K] | None:
        """Return the earliest time and its key."""
        heap = self._heap
        return None if heap is None else (heap[0], heap[1])  # type: ignore[return-value]  # the heap holds keys of the map

    def set(self, key: K, due: int) -> Deadlines[K]:
        """Return the deadlines with `key` due at `due`, whatever it was before."""
        return Deadlines(*put(self._due, self._heap, key, due))

    def cancel(self, key: K) -> Deadlines[K]:
        """Return the deadlines without `key`."""
        return Deadlines(*drop(self._due, self._heap, key)) if key in self._due else self
