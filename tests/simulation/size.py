"""Which seeds `make test` simulates; `make test-system` draws others, `make simulate` goes on.

`python -m tests.simulation.size` chooses CHOSEN again, when a row of a table is taken by none.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor

from kohort.simulation.coverage import RARE, must_hit
from kohort.simulation.runs.drawing import PALETTE
from kohort.simulation.runs.fleet import run_counted

# Together they take every row of the tables, every fault and every rare event.
CHOSEN = (
    *(14, 16, 23, 34, 70, 84, 85, 94, 100, 104),
    *(123, 153, 161, 168, 197, 238, 240, 263, 264, 288),
)
FLEET = sorted({*range(10), *CHOSEN})
# How many seeds are run twice and compared.
TWICE = 8
# How many seeds are looked through for CHOSEN.
SEARCHED = 300


def reached(seed: int) -> tuple[int, float, frozenset[str]]:
    """A seed, the processor time of its run, and what it takes of what has to be taken."""
    started = time.process_time()
    summary, taken = run_counted(range(seed, seed + 1))
    wanted = (*RARE, *(f"fault {kind}" for kind in PALETTE))
    events = [name for name in wanted if summary.notes[name]]
    rows = [row for row in must_hit() if taken[row]]
    return seed, time.process_time() - started, frozenset([*rows, *events])


def choose(runs: list[tuple[int, float, frozenset[str]]]) -> list[int]:
    """Few seeds, and quick ones, that together reach all that any reaches."""
    left = set().union(*(found for _, _, found in runs))
    chosen = []
    while left:
        best = max(runs, key=lambda each: len(each[2] & left) / max(each[1], 0.02))
        chosen.append(best)
        left -= best[2]
    for each in sorted(chosen, key=lambda run: -run[1]):
        others = [other[2] for other in chosen if other is not each]
        if each[2] <= set().union(*others):
            chosen.remove(each)
    return sorted(seed for seed, _, _ in chosen)


if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        sys.stdout.write(f"{choose(list(pool.map(reached, range(SEARCHED))))}\n")
