"""How fast the simulator is: virtual hours and events per second of one core.

Ten members with default time-outs and no faults, with all checkers and without; then the seeds of
the test suite as they are drawn. Nothing is compared with: nobody else simulates these groups.

    python benchmarks/simulation.py [--minutes N] [--seeds N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

from kohort.simulation.checkers import CHECKERS
from kohort.simulation.fleet import scenarios
from kohort.simulation.running import Outcome, run
from kohort.simulation.scenario import MemberPlan, Scenario, TopicPlan
from kohort.simulation.world import NO_CHECKERS, Checkers

# What is wanted, per second of one core.
EVENTS_CHECKED, EVENTS_UNCHECKED, MEMBER_HOURS = 20_000, 40_000, 10


def calm(minutes: int, protocol: str) -> Scenario:
    """Return ten members that nothing happens to."""
    members = tuple(MemberPlan(name=f"member-{n}", assignors=()) for n in range(10))
    topics = (TopicPlan(name="flights", partitions=20),)
    return Scenario(seed=1, protocol=protocol, minutes=minutes, members=members, topics=topics)


def measure(work: Callable[[], list[Outcome]], rounds: int) -> tuple[float, float]:
    """Return events per second and virtual hours per second, medians over the rounds."""
    events, hours = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        outcomes = work()
        seconds = time.perf_counter() - started
        failed = [outcome.complaint for outcome in outcomes if not outcome.is_ok]
        if failed:
            raise SystemExit(f"a rule is broken: {failed[0]}")
        events.append(sum(outcome.events for outcome in outcomes) / seconds)
        hours.append(sum(outcome.simulated_ms for outcome in outcomes) / 3.6e6 / seconds)
    return statistics.median(events), statistics.median(hours)


def one(scenario: Scenario, checkers: Checkers) -> Callable[[], list[Outcome]]:
    """Return what runs one scenario."""
    return lambda: [run(scenario, checkers=checkers, trace=False)]


def main() -> None:
    """Measure, print, and exit with 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for protocol in ("classic", "cooperative", "consumer"):
        scenario = calm(arguments.minutes, protocol)
        for name, checkers in (("checked", CHECKERS), ("unchecked", NO_CHECKERS)):
            events, hours = measure(one(scenario, checkers), arguments.rounds)
            row = {"events_per_s": events, "member_hours_per_s": 10 * hours}
            figures[f"calm {protocol}, {name}"] = row
    drawn = list(scenarios(range(arguments.seeds)))
    swarm = measure(lambda: [run(each, trace=False) for each in drawn], arguments.rounds)
    figures["drawn seeds, checked"] = {
        "events_per_s": swarm[0],
        "member_hours_per_s": 4.5 * swarm[1],
    }
    reached = (
        figures["calm classic, checked"]["events_per_s"] >= EVENTS_CHECKED
        and figures["calm classic, unchecked"]["events_per_s"] >= EVENTS_UNCHECKED
        and figures["calm classic, checked"]["member_hours_per_s"] >= MEMBER_HOURS
    )
    if arguments.json:
        print(json.dumps({"figures": figures, "reached": reached}))
    else:
        for name, row in figures.items():
            print(
                f"{name:32} {row['events_per_s']:>9,.0f} events/s"
                f" {row['member_hours_per_s']:>7.1f} member-hours/s"
            )
        print(f"targets: {EVENTS_CHECKED:,} and {EVENTS_UNCHECKED:,} events/s,", end=" ")
        print(f"{MEMBER_HOURS} member-hours/s, checked: {'reached' if reached else 'missed'}")
    raise SystemExit(0 if reached else 1)


if __name__ == "__main__":
    main()
