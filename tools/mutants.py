"""Plant every bug, and report which checker of the simulator catches it: `make mutants`.

First the hand-written bugs, then each row of each table: ignored, with its guard negated, and doing
what the next row does. A crash, a typed error or a timeout does not count as a catch, nor does a
run that also fails without the bug.

`tests/planted/catches.toml` has the run that last caught each bug, which is tried first; `--record`
rewrites the file. `tests/planted/survivors.toml` names the bugs that cannot be caught, or have not
been, with the reason; a listed bug that is caught is also an error.
"""

from __future__ import annotations

import argparse
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.simulation.planting.bug import Bug
from tests.simulation.planting.catching import (
    Catch,
    Try,
    all_tries,
    catch,
    every,
    rows_taken,
    tries_of,
)

DATA = Path(__file__).resolve().parents[1] / "tests" / "planted"
CATCHES, SURVIVORS = DATA / "catches.toml", DATA / "survivors.toml"
AT_ONCE = 2
# Five protocols: 300 runs.
SEEDS = 60
# Number of runs for each bug that is listed as a survivor, unless all are requested.
FEW = 15


def read(path: Path) -> dict[str, str]:
    """Return the text for each bug in a file."""
    return dict(tomllib.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def part(names: Sequence[str], number: int, parts: int) -> list[str]:
    """Return one of several parts; the number may be of any size, the parts are taken in turn."""
    return list(names[number % parts :: parts])


def attempt(name: str, tries: Sequence[Try]) -> Catch:
    """Try one bug; an exception in the simulation does not count as a catch."""
    return catch(every()[name], tries)


def known(names: Iterable[str]) -> list[tuple[str, list[Try]]]:
    """Return the run that last caught each bug, without listed survivors."""
    catches = read(CATCHES)
    return [(name, [Try.read(catches[name])]) for name in names if name in catches]


def run(work: Sequence[tuple[str, Sequence[Try]]], at_once: int = AT_ONCE) -> list[Catch]:
    """Try each bug with its runs."""
    if at_once == 1:
        return [attempt(name, tries) for name, tries in work]
    with ProcessPoolExecutor(at_once) as pool:
        chunk = max(1, min(8, len(work) // (4 * at_once)))
        names, runs = [name for name, _ in work], [tries for _, tries in work]
        return [_said(each) for each in pool.map(attempt, names, runs, chunksize=chunk)]


def _said(each: Catch) -> Catch:
    by = f"{each.checker} in {each.by}" if each.by else "nothing yet"
    print(f"{by:26} {each.tries:>3} runs  {each.name}", flush=True)
    return each


def taking(seeds: int) -> dict[str, list[Try]]:
    """Return the runs that take each row."""
    found: dict[str, list[Try]] = defaultdict(list)
    tries = all_tries(seeds)
    with ProcessPoolExecutor(AT_ONCE) as pool:
        for each, rows in zip(tries, pool.map(rows_taken, tries, chunksize=8), strict=True):
            for row in rows:
                found[row].append(each)
    return found


def search(names: Sequence[str], seeds: int, most: int, few: Iterable[str] = ()) -> list[Catch]:
    """Search for runs that catch bugs for which no run is known, or whose known run no longer does.

    Args:
        names: The bugs.
        seeds: Number of seeds of each protocol to choose from.
        most: Maximum number of runs for each bug.
        few: Bugs for which a few runs are enough.
    """
    if not names:
        return []
    rows, planted, some = taking(seeds), every(), frozenset(few)
    limits = {name: min(most, FEW) if name in some else most for name in names}
    return run([(name, tries_of(planted[name], rows, limits[name])) for name in names])


def record(caught: Iterable[Catch]) -> None:
    """Record the run that caught each bug."""
    lines = sorted(f'"{each.name}" = "{each.by}"  # {each.checker}' for each in caught if each.by)
    head = "# Which run catches each planted bug, and by which rule: written by tools/mutants.py.\n"
    CATCHES.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def complaints(outcomes: Mapping[str, Catch], survivors: Mapping[str, str]) -> list[str]:
    """Return the errors: survivors that are not listed, and listed ones that were caught."""
    found = []
    for name, each in outcomes.items():
        if each.by is None and name not in survivors:
            raised = f", raised in {each.crashes}" if each.crashes else ""
            found.append(f"SURVIVES {each.tries} runs{raised}: {name}")
        if each.by is not None and name in survivors:
            found.append(f"is listed as a survivor, and {each.checker} catches it: {name}")
    return found


def show(outcomes: Mapping[str, Catch], survivors: Mapping[str, str]) -> None:
    """Print the number of caught bugs for each table."""
    planted = every()
    tables: dict[str, list[Catch]] = defaultdict(list)
    for name, each in outcomes.items():
        bug = planted[name]
        tables["written by hand" if isinstance(bug, Bug) else bug.table.name].append(each)
    for table, many in tables.items():
        caught = sum(each.by is not None for each in many)
        listed = sum(each.by is None and each.name in survivors for each in many)
        print(f"{table:18} {caught:>4} of {len(many):>4} caught, {listed:>3} listed as survivors")


def main() -> int:
    """Plant everything; exit with 1 if an unlisted bug survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", default="0/1", help="N/M: only the Nth of M parts")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of each protocol to search")
    parser.add_argument("--most", type=int, default=300, help="runs to try for each bug")
    parser.add_argument("--all", action="store_true", help="try all runs for listed survivors too")
    parser.add_argument("--record", action="store_true", help="write down what catches each bug")
    options = parser.parse_args()
    started = time.monotonic()
    number, _, parts = options.part.partition("/")
    names = part(list(every()), int(number), int(parts))
    survivors = read(SURVIVORS)
    outcomes = {each.name: each for each in run(known(names)) if each.by is not None}
    left = [name for name in names if name not in outcomes]
    few = () if options.all else survivors
    outcomes |= {each.name: each for each in search(left, options.seeds, options.most, few)}
    if options.record:
        record(outcomes.values())
    show(outcomes, survivors)
    wrong = complaints(outcomes, survivors)
    print("\n".join([*wrong, f"{time.monotonic() - started:.0f} s"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
