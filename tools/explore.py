"""Visit every state of small groups, breadth first: `make explore`."""

from __future__ import annotations

import argparse
import sys
import time

from kohort.simulation.exploring import Explorer

# Members, partitions, perturbations.
SIZES = ((2, 2, 1), (2, 2, 2), (3, 3, 3))


def main() -> int:
    """Explore; exit with 1 when a rule is broken, and print how."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="most states of each size")
    arguments = parser.parse_args()
    for assignor in ("range", "cooperative-sticky"):
        for members, partitions, perturbations in SIZES:
            started = time.monotonic()
            explorer = Explorer(members, partitions, perturbations, assignor)
            found = explorer.explore(arguments.states)
            whole = "all of them" if found.is_complete else "bounded"
            seconds = time.monotonic() - started
            print(
                f"{assignor}: {members} members, {partitions} partitions,"
                f" {perturbations} perturbations: {found.states} states ({whole}),"
                f" {found.steps} events, {seconds:.0f} s",
                flush=True,
            )
            if found.violation:
                print("\n".join([*found.path, found.violation]))
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
