"""Virtual time: a heap of what happens when, and nothing else.

Time is an integer of milliseconds. What is due at the same time happens in the order in which it
was asked for, so a run has exactly one order of events.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol, TypeAlias

Action: TypeAlias = Callable[..., None]


class Process(Protocol):
    """Somebody to whom things happen, unless he is dead or stands still.

    Attributes:
        alive: Whether he runs; nothing happens to the dead.
        paused_until: Until when he stands still (a garbage collection, a suspended machine): what
            would happen to him before that happens then, in the same order.
    """

    alive: bool
    paused_until: int


class Engine:
    """The clock and what is due."""

    __slots__ = ("_heap", "_sequence", "now", "steps")

    def __init__(self) -> None:
        self.now = 0
        self.steps = 0
        self._sequence = 0
        self._heap: list[tuple[int, int, Process | None, Action, tuple[object, ...]]] = []

    def at(self, when: int, process: Process | None, action: Action, *arguments: object) -> None:
        """Let something happen to a process (None: to the world) at a time, or now if that is over.

        Args:
            when: Time in milliseconds.
            process: To whom.
            action: What.
            *arguments: What the action is called with.
        """
        self._sequence += 1
        due = max(self.now, when)
        heappush(self._heap, (due, self._sequence, process, action, arguments))

    def after(self, delay: int, process: Process | None, action: Action, *args: object) -> None:
        """As `at`, counted from now."""
        self.at(self.now + delay, process, action, *args)

    def run(self, until: int) -> None:
        """Let everything happen that is due up to a time, which it then is."""
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
