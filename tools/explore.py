"""Visit every state of small groups, breadth first: `make explore`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.simulation.exploring import PROTOCOLS, Explored, SmallGroup, explore

# Members, partitions, perturbations.
SIZES = ((2, 2, 1), (2, 2, 2), (3, 3, 3))


def main() -> int:
    """Explore; if a rule is broken, print how, and exit with 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="most states of each size")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="only this one")
    parser.add_argument(
        "--size", type=int, nargs=3, help="only this one: members, partitions, perturbations"
    )
    arguments = parser.parse_args()
    sizes = [tuple(arguments.size)] if arguments.size else SIZES
    for name in [arguments.protocol] if arguments.protocol else PROTOCOLS:
        for size in sizes:
            found = _explore(name, size, arguments.states)
            if found.violation:
                print("\n".join([*found.path, found.violation]))
                return 1
    return 0


def _explore(name: str, size: tuple[int, ...], most: int) -> Explored:
    members, partitions, perturbations = size
    started = time.process_time()
    found = explore(SmallGroup(PROTOCOLS[name], members, partitions, perturbations), most)
    seconds = time.process_time() - started
    print(
        f"{name}: {members} members, {partitions} partitions, {perturbations} perturbations:"
        f" {found.states:,} states ({'all of them' if found.is_complete else 'bounded'}),"
        f" {found.steps:,} events, {seconds:.0f} s, {found.states / seconds:,.0f} states/s",
        flush=True,
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
