"""Visit every state of small regions, breadth first: `make explore-regions`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.simulation.exploring.regions import KINDS, SmallRegion
from tests.simulation.exploring.search import Explored, explore

# Operators, partitions, perturbations.
SIZES = ((1, 1, 1), (1, 1, 2), (2, 1, 1), (2, 2, 0), (2, 2, 1), (2, 2, 2))


def main() -> int:
    """Explore; if a rule is broken, print how, and exit with 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="most states of each size")
    parser.add_argument(
        "--size", type=int, nargs=3, help="only this one: operators, partitions, perturbations"
    )
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this goes wrong")
    parser.add_argument("--records", type=int, default=1, help="records of each partition")
    parser.add_argument("--cold", action="store_true", help="begin before anybody has started")
    given = parser.parse_args()
    for size in [tuple(given.size)] if given.size else SIZES:
        operators, partitions, perturbations = size
        region = SmallRegion(
            operators,
            partitions,
            perturbations,
            records=given.records,
            kinds=tuple(given.kind or KINDS),
            is_cold=given.cold,
        )
        found = _explore(region, size, given.states)
        if found.violation:
            print("\n".join([*found.path, found.violation]))
            return 1
    return 0


def _explore(region: SmallRegion, size: tuple[int, ...], most: int) -> Explored:
    operators, partitions, perturbations = size
    started = time.process_time()
    found = explore(region, most)
    seconds = time.process_time() - started
    print(
        f"{operators} operators, {partitions} partitions, {perturbations} perturbations:"
        f" {found.states:,} states ({'all of them' if found.is_complete else 'bounded'}),"
        f" {found.steps:,} events, {seconds:.0f} s, {found.states / seconds:,.0f} states/s",
        flush=True,
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
