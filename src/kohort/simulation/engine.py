"""Virtual time: a heap of actions by their times.

Time is an integer of milliseconds. Actions that are due at the same time run in the order in which
they were scheduled, so a run has exactly one order of events.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol, TypeAlias

Action: TypeAlias = Callable[..., None]


class Process(Protocol):
    """The target of actions, unless it is dead or suspended.

    Attributes:
        alive: Whether it runs; actions of dead processes are dropped.
        paused_until: Until when it is suspended (a garbage collection, a stopped machine): earlier
            actions happen then, in the same order.
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
