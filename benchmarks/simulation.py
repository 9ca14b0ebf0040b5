"""The speed of the simulator: member-hours and machine events per second on one core.

The hours are measured with a calm group of ten members with default timeouts, the events with the
seeds that the command runs, with all their faults. A machine event is one that a coordinator's or a
member's machine decides: a request, a response, a deadline, a call that has returned.

    python benchmarks/simulation.py [--rounds N] [--json]
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import harness  # noqa: E402  # found only after the line above
from kohort.simulation.checkers import CHECKERS  # noqa: E402  # as above
from kohort.simulation.groups.protocols import CAMPAIGNS, MIGRATION  # noqa: E402  # as above
from kohort.simulation.groups.world import NO_CHECKERS, World  # noqa: E402  # as above
from kohort.simulation.rules import Checkers  # noqa: E402  # as above
from kohort.simulation.runs.drawing import draw  # noqa: E402  # as above
from kohort.simulation.runs.running import run, run_world  # noqa: E402  # as above
from kohort.simulation.runs.scenario import MemberPlan, Scenario, TopicPlan  # noqa: E402  # as above
from kohort.simulation.trace import Trace  # noqa: E402  # as above

MEMBERS = 10
MINUTES = 20
SEEDS = range(4)
SEED_MINUTES = 10
HOURS_TARGET = 10.0
EVENTS_TARGET = {"checkers on": 20_000.0, "checkers off": 40_000.0}
SIDES: dict[str, Checkers] = {"checkers on": CHECKERS, "checkers off": NO_CHECKERS}
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Work:
    """Scenarios to run, and their size.

    Attributes:
        scenarios: The scenarios.
        events: Number of their machine events.
        member_hours: Their virtual time multiplied by their members.
    """

    scenarios: tuple[Scenario, ...]
    events: int
    member_hours: float


def calm(protocol: str) -> Scenario:
    """Ten members with default timeouts, one topic, and no faults.

    In a migration every other member still uses the classic protocol.
    """
    members = tuple(
        MemberPlan(
            name=f"member-{number}",
            assignors=(),
            protocol="classic" if protocol == MIGRATION and number % 2 else "",
        )
        for number in range(MEMBERS)
    )
    topics = (TopicPlan(name="flights", partitions=3 * MEMBERS),)
    return Scenario(seed=1, protocol=protocol, minutes=MINUTES, members=members, topics=topics)


class Counter(Trace):
    """A trace that only counts machine events."""

    def __init__(self) -> None:
        super().__init__(keep=False)
        self.events = 0

    def coordinator(self, *_: object) -> None:
        """Count an event of the coordinator."""
        self.events += 1

    def member(self, *_: object) -> None:
        """Count an event of a member."""
        self.events += 1


def measured(scenarios: tuple[Scenario, ...], checkers: Checkers) -> Work:
    """Count the events of scenarios; a scenario that breaks a rule counts up to that point.

    Without checkers the deliveries are not recorded, so a run cannot detect that the group has
    converged, waits until the limit, and has more events.
    """
    hours, counter = 0.0, Counter()
    for each in scenarios:
        outcome = run_world(World(each, checkers=checkers, trace=counter))
        hours += len(each.members) * outcome.simulated_ms / _HOUR_MS
    return Work(scenarios, counter.events, hours)


def seconds(work: Work, checkers: Checkers) -> float:
    """Return the CPU time of some work, which has one thread."""
    start = time.process_time()
    for each in work.scenarios:
        run(each, checkers=checkers, trace=False)
    return time.process_time() - start


Key = tuple[str, str, str]


def works() -> dict[Key, Work]:
    """Return the work to measure, by protocol, kind of scenario and side."""
    found: dict[Key, Work] = {}
    for protocol in CAMPAIGNS:
        drawn = tuple(draw(seed, protocol, SEED_MINUTES) for seed in SEEDS)
        for title, scenarios in (("calm", (calm(protocol),)), ("seeds", drawn)):
            for side, checkers in SIDES.items():
                found[protocol, title, side] = measured(scenarios, checkers)
    return found


def rounds(measures: dict[Key, Work], count: int) -> dict[Key, list[float]]:
    """Measure everything in turn, several times; return the seconds of each.

    Taking turns distributes a slow phase of the machine over all measurements.
    """
    times: dict[Key, list[float]] = {key: [] for key in measures}
    for _ in range(count):
        for key, work in measures.items():
            times[key].append(seconds(work, SIDES[key[2]]))
    return times


@dataclass(frozen=True)
class Figure:
    """A rate: of the median round, which is judged, and of the shortest; and the target."""

    value: float
    best: float
    target: float


def figures(count: int) -> dict[str, Figure]:
    """Return each figure by name."""
    found: dict[str, Figure] = {}
    measures = works()
    for key, taken in rounds(measures, count).items():
        work, (_, title, side), name = measures[key], key, ", ".join(key)
        median, least = statistics.median(taken), min(taken)
        events, hours = work.events, work.member_hours
        found[f"{name}: machine events/s"] = Figure(
            events / median, events / least, EVENTS_TARGET[side]
        )
        if (title, side) == ("calm", "checkers on"):
            found[f"{name}: member-hours/s"] = Figure(hours / median, hours / least, HOURS_TARGET)
    return found


def main() -> int:
    """Measure and print; return 1 if a target was missed."""
    options = harness.arguments(__doc__ or "", rounds=5).parse_args()
    found = figures(options.rounds)
    missed = [name for name, each in found.items() if each.value < each.target]
    if options.json:
        report = {
            "benchmark": "simulation",
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "figures": {name: each.value for name, each in found.items()},
            "best": {name: each.best for name, each in found.items()},
            "targets": {name: each.target for name, each in found.items()},
            "missed": missed,
        }
        print(json.dumps(report))
    else:
        for name, each in found.items():
            word = "MISSED" if name in missed else "reached"
            print(
                f"  {name:<52} {each.value:10,.1f}   best {each.best:10,.1f}"
                f"   target {each.target:8,.0f}: {word}"
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
