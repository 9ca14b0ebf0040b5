"""Virtual time, a heap of actions by their times; and keyed random numbers.

Time is an integer of milliseconds. Actions that are due at the same time run in the order in which
they were scheduled, so a run has exactly one order of events.

Each purpose and entity has its own stream derived from the seed, and each draw takes exactly one
number from it. So leaving out a fault elsewhere does not change the n-th delay on a connection, and
shrinking does not change the parts that it keeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import log
from typing import Protocol, TypeAlias, TypeVar

Action: TypeAlias = Callable[..., None]

T = TypeVar("T")


class Process(Protocol):
    """The target of actions, unless it is dead or suspended.

    Attributes:
        alive: Whether it runs; actions of dead processes are dropped.
        paused_until: Until when it is suspended (a garbage collection, a stopped machine); earlier
            actions are delayed until then, in the same order.
    """

    alive: bool
    paused_until: int


class Engine:
    """The clock and the scheduled actions."""

    __slots__ = ("_heap", "_sequence", "now", "steps")

    def __init__(self) -> None:
        self.now = 0
        self.steps = 0
        self._sequence = 0
        self._heap: list[tuple[int, int, Process | None, Action, tuple[object, ...]]] = []

    def at(self, when: int, process: Process | None, action: Action, *arguments: object) -> None:
        """Schedule an action of a process (None: the world) at a time, or now if that has passed.

        Args:
            when: Time in milliseconds.
            process: The process.
            action: The action.
            *arguments: Its arguments.
        """
        self._sequence += 1
        due = max(self.now, when)
        heappush(self._heap, (due, self._sequence, process, action, arguments))

    def after(self, delay: int, process: Process | None, action: Action, *args: object) -> None:
        """Like `at`, counted from now."""
        self.at(self.now + delay, process, action, *args)

    def run(self, until: int) -> None:
        """Run everything that is due up to a time, and set the clock to it."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            due, _, process, action, arguments = heappop(heap)
            self.now = due
            if process is not None:
                if not process.alive:
                    continue
                if process.paused_until > due:
                    self.at(process.paused_until, process, action, *arguments)
                    continue
            self.steps += 1
            action(*arguments)
        self.now = max(self.now, until)


class Stream:
    """The numbers of one purpose and entity; the n-th one is a function of (key, n).

    Args:
        seed: Seed of the run.
        purpose: What the numbers are for.
        entity: The entity that draws them.
    """

    __slots__ = ("_next",)

    def __init__(self, seed: int, purpose: str, entity: str = "") -> None:
        self._next = random.Random(f"{seed}/{purpose}/{entity}").random

    def uniform(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        return self._next()

    def happens(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._next() < probability

    def between(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return low + int(self._next() * (high - low + 1))

    def exponential(self, mean: float) -> float:
        """Return a number with this mean, most of them small."""
        return -log(1.0 - self._next()) * mean

    def choice(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[int(self._next() * len(options))]

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        """Return `count` of the options, or all of them, in their order."""
        left = list(range(len(options)))
        chosen = sorted(
            left.pop(int(self._next() * len(left))) for _ in range(min(count, len(left)))
        )
        return [options[index] for index in chosen]
