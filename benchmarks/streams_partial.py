"""One rebalance for each learned task, or one for all? `learner_partial_rebalance`.

Two members have 40 tasks with state, and two more join. A member learns its tasks in parallel; the
size of a task's state is random. Leaders and members are the real machines, on a simulated clock.
It counts the rebalances until nothing moves, and the time until a task has moved, in units of the
time to learn an average task alone.

    python benchmarks/streams_partial.py [--rounds N] [--json]
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from pathlib import Path
from typing import Any

from immutables import Map

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.streams.assignment.member import LagMeasured  # noqa: E402  # as above
from kohort.streams.assignment.settings import LearnerSettings  # noqa: E402  # as above
from kohort.streams.assignment.tasks import Task  # noqa: E402  # as above
from tests.streams.machines import World  # noqa: E402  # as above

PARTITIONS = {"orders": 40, "prices": 40}
SPREAD = 1.0
"""Of the logarithm of the state's size; 1: a task in six has 2.7 times as much as the median."""
_FAR = 2**40


class Learning:
    """The tasks being learned, on the simulated clock.

    Attributes:
        now: The time.
        moved: When each task was granted to another member.
    """

    def __init__(self, seed: int, agreed: LearnerSettings) -> None:
        self.rng = random.Random(seed)
        self.world = World(agreed, PARTITIONS, self.rng)
        sizes = [self.rng.lognormvariate(-(SPREAD**2) / 2, SPREAD) for _ in range(40)]
        self.left: dict[tuple[str, Task], float] = {}
        self.sizes = {Task(0, number): size for number, size in enumerate(sizes)}
        self.now = 0.0
        self.moved: list[float] = []

    def run(self) -> int:
        """Give two members all tasks and let two more join; return the number of rebalances."""
        for name in ("a", "b"):
            self.world.start(name)
        self.world.settle()
        for name in ("c", "d"):
            self.world.start(name)
        before = self.world.rebalances
        self._rebalance()
        while self.left:
            self._until_next()
            self._rebalance()
        return self.world.rebalances - before

    def _rebalance(self) -> None:
        while self.world.wants_rebalance:
            active = self.world.active()
            self.world.rebalance()
            for name, tasks in self.world.active().items():
                if name in ("c", "d"):
                    self.moved += [self.now] * len(tasks - active.get(name, frozenset()))
        learned = {
            (name, task)
            for name, each in self.world.processes.items()
            for task in each.machine.session.instructions.learning
            if each.machine.session.lags.get(task) != 0
        }
        self.left = {each: self.left.get(each, self.sizes[each[1]]) for each in learned}

    def _until_next(self) -> None:
        """Advance to the time when the next task is learned; a member's tasks share its speed."""
        busy: dict[str, int] = {}
        for name, _ in self.left:
            busy[name] = busy.get(name, 0) + 1
        first = min(self.left, key=lambda each: self.left[each] * busy[each[0]])
        passed = self.left[first] * busy[first[0]]
        self.now += passed
        for each in self.left:
            self.left[each] -= passed / busy[each[0]]
        del self.left[first]
        self.world.put(first[0], LagMeasured(Map({first[1]: 0})))


def measure(is_partial: bool, budget: int | None, rounds: int) -> dict[str, float]:
    """Return means over this many random groups."""
    agreed = LearnerSettings(learner_partial_rebalance=is_partial, max_warmup_learners=budget)
    counts: list[float] = []
    ends: list[float] = []
    moved: list[float] = []
    for seed in range(rounds):
        learning = Learning(seed, agreed)
        counts.append(learning.run())
        ends.append(learning.now)
        moved.append(statistics.fmean(learning.moved))
    figures = {"rebalances": counts, "until moved": moved, "until balanced": ends}
    return {name: round(statistics.fmean(each), 1) for name, each in figures.items()}


def main() -> None:
    """Measure and print."""
    options = harness.arguments(__doc__ or "", rounds=5).parse_args()
    found: dict[str, Any] = {}
    for budget in (2, 8, None):
        for is_partial in (True, False):
            name = f"{'each' if is_partial else 'all'}, max_warmup_learners={budget}"
            found[name] = measure(is_partial, budget, options.rounds)
    if options.json:
        print(json.dumps({"benchmark": "streams_partial", **found}))
        return
    for name, figures in found.items():
        print(f"{name:32}", "  ".join(f"{what} {value}" for what, value in figures.items()))


if __name__ == "__main__":
    main()
