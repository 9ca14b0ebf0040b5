"""Plant every bug, and say which checker of the simulator catches it: `make mutants`.

First the bugs written by hand, then each row of each table ignored, with its guard negated, and
doing what another row does. A crash, a typed error or a time-out is no catch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict

from kohort.simulation.coverage import counted
from kohort.simulation.drawing import draw
from kohort.simulation.planting.catching import MINUTES, Catch, bugs, catch_bug, catch_mutant
from kohort.simulation.planting.mutation import mutants
from kohort.simulation.protocols import PROTOCOLS
from kohort.simulation.running import run
from kohort.simulation.scenario import Scenario
from kohort.simulation.world import NO_CHECKERS

NAMES = tuple(PROTOCOLS)


def scenario(seed: int) -> Scenario:
    """Return the scenario of a seed; the protocols take turns."""
    return draw(seed, NAMES[seed % len(NAMES)], MINUTES)


def seeds_by_row(seeds: int) -> dict[str, list[int]]:
    """Return which seeds take each row: a bug in a row that is not taken cannot show."""
    found: dict[str, list[int]] = defaultdict(list)
    for seed in range(seeds):
        with counted() as taken:
            run(scenario(seed), trace=False, checkers=NO_CHECKERS)
        for row in taken:
            found[row].append(seed)
    return found


def report(caught: Catch) -> bool:
    """Print a line, and return whether the bug was caught."""
    by = f"{caught.checker} with seed {caught.seed}" if caught.checker else "SURVIVED"
    print(f"{by:20} after {caught.seeds:>3}  {caught.name}", flush=True)
    return bool(caught.checker)


def main() -> int:
    """Plant everything; exit with 1 when a bug written by hand survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="seeds to try for each bug")
    parser.add_argument("--by-hand", action="store_true", help="only the bugs written by hand")
    arguments = parser.parse_args()
    started = time.monotonic()
    by_hand = [report(catch_bug(each, range(arguments.seeds))) for each in bugs()]
    print(f"{sum(by_hand)} of {len(by_hand)} bugs written by hand are caught")
    if not arguments.by_hand:
        hits = seeds_by_row(arguments.seeds)
        tried = [
            report(catch_mutant(each, (scenario(seed) for seed in hits[each.row_label])))
            for each in mutants()
            if hits.get(each.row_label)
        ]
        left = [each.name for each in mutants() if not hits.get(each.row_label)]
        print(f"{sum(tried)} of {len(tried)} changed rows are caught; not taken: {len(left)}")
    print(f"{time.monotonic() - started:.0f} s")
    return 0 if all(by_hand) else 1


if __name__ == "__main__":
    sys.exit(main())
