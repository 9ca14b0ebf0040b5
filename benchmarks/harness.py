"""Shared parts of the benchmarks: both sides in one run, in turn, and medians.

A figure from another day or machine is not comparable. So every benchmark alternates between the
measured code and its peers in one process, for at least five rounds, and reports the median of
each, and of their ratio round by round.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MIN_ROUNDS = 5

Check = Callable[[object], None]


@dataclass(frozen=True, slots=True)
class Side:
    """One thing to measure.

    Attributes:
        name: Its name in the report.
        run: Does the work once; its result is passed to `check`.
        units: Records (or other units, see `Benchmark.unit`) that one run handles.
        check: Raises if the result is wrong. It is called after every run and is not timed.
        seconds: Gets the duration from the result if the run is another process that measures
            itself, so that its start does not count.
    """

    name: str
    run: Callable[[], object]
    units: int
    check: Check
    seconds: Callable[[object], float] | None = None


@dataclass(slots=True)
class Result:
    """The rates of all sides, one for each round.

    Attributes:
        unit: The unit that is counted per second.
        rates: For each side, units per second in each round.
        targets: The minimum of a figure, by name.
        limits: The maximum of a figure, by name.
        figures: The value of a figure, by name.
    """

    unit: str
    rates: dict[str, list[float]]
    targets: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def median(self, side: str) -> float:
        """Return the median rate of a side."""
        return statistics.median(self.rates[side])

    def ratio(self, side: str, other: str) -> float:
        """Return the median over the rounds of the speed of `side` relative to `other`."""
        pairs = zip(self.rates[side], self.rates[other], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    def expect(self, name: str, value: float, target: float) -> None:
        """Record a figure and its minimum."""
        self.figures[name] = value
        self.targets[name] = target

    def limit(self, name: str, value: float, most: float) -> None:
        """Record a figure and its maximum."""
        self.figures[name] = value
        self.limits[name] = most

    def note(self, name: str, value: float) -> None:
        """Record a figure without a target."""
        self.figures[name] = value

    @property
    def reached(self) -> bool:
        """Whether every figure reached its target."""
        return not self.missed

    @property
    def missed(self) -> list[str]:
        """The figures that did not reach their targets."""
        return [
            name
            for name, value in self.figures.items()
            if value < self.targets.get(name, value) or value > self.limits.get(name, value)
        ]


def measure(sides: Sequence[Side], rounds: int, unit: str) -> Result:
    """Run all sides in turn, once to warm up and then `rounds` times."""
    if rounds < MIN_ROUNDS:
        raise SystemExit(f"{rounds} rounds are too few for a median; take at least {MIN_ROUNDS}")
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    for side in sides:
        side.check(side.run())
    for number in range(rounds):
        # the second side finds warm caches, so alternate the order too
        for side in sides if number % 2 == 0 else reversed(sides):
            rates[side.name].append(_rate(side))
    return Result(unit, rates)


def _rate(side: Side) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        answer = side.run()
        seconds = time.perf_counter() - start
    finally:
        gc.enable()
    side.check(answer)
    return side.units / (seconds if side.seconds is None else side.seconds(answer))


def arguments(description: str, rounds: int = 7) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds of each side")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    return parser


def report(title: str, result: Result, as_json: bool) -> int:
    """Print the figures; return the exit code, 1 if a target was missed."""
    if as_json:
        print(json.dumps(_as_dict(title, result)))
    else:
        _print_table(title, result)
    return 0 if result.reached else 1


def _as_dict(title: str, result: Result) -> dict[str, object]:
    return {
        "benchmark": title,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "unit": f"{result.unit}/s",
        "medians": {side: result.median(side) for side in result.rates},
        "rounds": result.rates,
        "figures": result.figures,
        "targets": result.targets,
        "limits": result.limits,
        "reached": result.reached,
    }


def _print_table(title: str, result: Result) -> None:
    print(title)
    for side, rates in result.rates.items():
        low, high = min(rates), max(rates)
        print(
            f"  {side:<34} {result.median(side) / 1e6:9.2f} million {result.unit}/s"
            f"   ({low / 1e6:.2f} to {high / 1e6:.2f}, {len(rates)} rounds)"
        )
    for name, value in result.figures.items():
        print(f"  {name:<34} {value:9.2f}{_verdict(name, result)}")


def _verdict(name: str, result: Result) -> str:
    if name in result.targets:
        wish = f"target {result.targets[name]:g}"
    elif name in result.limits:
        wish = f"at most {result.limits[name]:g}"
    else:
        return ""
    return f"   {wish}: {'MISSED' if name in result.missed else 'reached'}"
