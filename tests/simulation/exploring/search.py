"""Breadth-first search through every state of a model, independent of groups.

It looks for two things: a state that breaks a rule, and a state from which the model can never come
to rest again without a perturbation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Protocol, TypeVar

from msgspec import Struct, field

S = TypeVar("S")


class Model(Protocol[S]):
    """A model to explore: a first state, and the events of each state."""

    def first(self) -> S:
        """Return the state in which it begins."""

    def steps(self, state: S) -> Iterable[tuple[str, S]]:
        """Return the steps of a state: name, and the state after it."""

    def perturbations(self, state: S) -> Iterable[tuple[str, S]]:
        """Return the perturbations of a state, which progress must not depend on."""

    def key(self, state: S) -> Hashable:
        """Return a key that is equal for states that no event can distinguish."""

    def wrong(self, state: S) -> str:
        """Return the rule that a state breaks; empty when none."""

    def is_settled(self, state: S) -> bool:
        """Whether the model is at rest in this state, with all its work done."""


class Explored(Struct):
    """The result of an exploration.

    Attributes:
        states: How many distinct states.
        steps: How many events were applied to them.
        is_complete: Whether all states were visited.
        violation: The broken rule; empty when none.
        path: A shortest sequence of events that leads there.
    """

    states: int = 0
    steps: int = 0
    is_complete: bool = False
    violation: str = ""
    path: list[str] = field(default_factory=list)


class _Graph(Struct):
    """The states that were reached, by number.

    Attributes:
        numbers: Number of each state, by its key.
        parents: For each state the one it was first reached from, and the event.
        before: For each state all that lead to it by normal steps.
        settled: The states at rest, and those that were not expanded.
    """

    numbers: dict[Hashable, int] = field(default_factory=dict)
    parents: list[tuple[int, str]] = field(default_factory=list)
    before: list[list[int]] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)

    def add(self, key: Hashable, parent: int, what: str) -> int:
        number = len(self.parents)
        self.numbers[key] = number
        self.parents.append((parent, what))
        self.before.append([])
        return number

    def path(self, number: int) -> list[str]:
        path: list[str] = []
        while number:
            number, what = self.parents[number]
            path.append(what)
        return path[::-1]

    def stuck(self) -> int | None:
        """Return the first state from which no state at rest can be reached."""
        reached = bytearray(len(self.parents))
        waiting = list(self.settled)
        while waiting:
            number = waiting.pop()
            if not reached[number]:
                reached[number] = 1
                waiting.extend(self.before[number])
        first = reached.find(0)
        return None if first < 0 else first


def explore(model: Model[S], limit: int) -> Explored:
    """Visit states, breadth first, until there are no new ones or `limit` are reached.

    States that were not expanded count as states from which the model may come to rest.
    """
    found, graph = Explored(), _Graph()
    start = model.first()
    queue = deque([(start, graph.add(model.key(start), 0, ""))])
    wrong = model.wrong(start)
    while queue and not wrong and len(graph.parents) < limit:
        state, at = queue.popleft()
        if model.is_settled(state):
            graph.settled.append(at)
        for what, after, is_step in _all_steps(model, state):
            found.steps += 1
            key = model.key(after)
            number = graph.numbers.get(key)
            if number is None:
                number = graph.add(key, at, what)
                wrong = model.wrong(after)
                queue.append((after, number))
                if wrong:
                    found.path = graph.path(number)
                    break
            if is_step:
                graph.before[number].append(at)
    found.states, found.violation = len(graph.parents), wrong
    found.is_complete = not queue
    graph.settled += [number for _, number in queue]
    stuck = None if wrong else graph.stuck()
    if stuck is not None:
        found.violation = "L1: from here it can never settle, unless something goes wrong"
        found.path = graph.path(stuck)
    return found


def _all_steps(model: Model[S], state: S) -> Iterator[tuple[str, S, bool]]:
    for what, after in model.steps(state):
        yield what, after, True
    for what, after in model.perturbations(state):
        yield what, after, False
