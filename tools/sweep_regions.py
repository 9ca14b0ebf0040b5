"""Play every pair of faults at every pair of times in a small region: `make sweep-regions`.

With one time per second these are 157,500 runs, two hours of CPU time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time

from kohort.simulation.regions.running import run
from kohort.simulation.regions.scenario import PROTOCOLS, RegionScenario, pairs, to_json

_CHUNK = 50
_SAY_EVERY = 10_000


def complaint(scenario: RegionScenario) -> tuple[str, str]:
    """Run a scenario, and return it with the complaint; both are empty if it passed."""
    outcome = run(scenario)
    return ("", "") if outcome.is_ok else (to_json(scenario), outcome.complaint)


def main() -> int:
    """Sweep; if a rule is broken, print how, and exit with 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1_000, help="milliseconds between moments")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="only this one")
    parser.add_argument("--part", type=int, default=1, help="play one run of so many")
    given = parser.parse_args()
    protocols = (given.protocol,) if given.protocol else PROTOCOLS
    scenarios = (
        each for at, each in enumerate(pairs(given.every, protocols)) if at % given.part == 0
    )
    began, count = time.monotonic(), 0
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for count, (scenario, wrong) in enumerate(
            pool.imap_unordered(complaint, scenarios, _CHUNK), 1
        ):
            if wrong:
                print(scenario, wrong, sep="\n")
                return 1
            if count % _SAY_EVERY == 0:
                print(f"{count:,} runs, {time.monotonic() - began:,.0f} s", flush=True)
    print(f"{count:,} runs without a broken rule, {time.monotonic() - began:,.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
