"""Many runs: their seeds and protocols, and their combined results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from kohort.simulation.coverage import counted
from kohort.simulation.groups.protocols import CAMPAIGNS
from kohort.simulation.runs.drawing import draw
from kohort.simulation.runs.running import Outcome, run
from kohort.simulation.runs.scenario import Scenario


class Summary(Struct):
    """The combined results of many runs.

    Attributes:
        runs: How many runs.
        failed: The runs that broke a rule.
        events: Number of events.
        simulated_ms: Total simulated time.
        rebalances: How many rebalances began.
        repeated: How many records were handed out more than once.
        notes: How often each rare event happened.
    """

    runs: int = 0
    failed: list[Outcome] = field(default_factory=list)
    events: int = 0
    simulated_ms: int = 0
    rebalances: int = 0
    repeated: int = 0
    notes: Counter[str] = field(default_factory=Counter)

    def merge(self, other: Summary) -> None:
        """Count the runs of another summary."""
        self.runs += other.runs
        self.failed += other.failed
        self.events += other.events
        self.simulated_ms += other.simulated_ms
        self.rebalances += other.rebalances
        self.repeated += other.repeated
        self.notes += other.notes

    def add(self, outcome: Outcome) -> None:
        """Count a run."""
        self.runs += 1
        self.events += outcome.events
        self.simulated_ms += outcome.simulated_ms
        self.rebalances += outcome.rebalances
        self.repeated += outcome.repeated
        self.notes += outcome.notes
        if not outcome.is_ok:
            self.failed.append(outcome)


def scenarios(seeds: Iterable[int], protocols: tuple[str, ...] = ()) -> Iterator[Scenario]:
    """Yield the scenario of each seed; the protocols take turns.

    Args:
        seeds: The seeds.
        protocols: Names of protocols; empty: all of them.
    """
    names = protocols or CAMPAIGNS
    for seed in seeds:
        yield draw(seed, names[seed % len(names)])


def run_all(many: Iterable[Scenario]) -> Summary:
    """Run scenarios, without a trace, and return their combined results."""
    summary = Summary()
    for each in many:
        summary.add(run(each, trace=False))
    return summary


def run_counted(seeds: range) -> tuple[Summary, Counter[str]]:
    """Run seeds, and count which rows of the tables they take."""
    with counted() as taken:
        return run_all(scenarios(seeds)), taken
