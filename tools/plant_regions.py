"""Plant bugs into regions by changing the code, and report what catches each.

`tests/planted/regions.toml` has for each bug the `file`, the text to `find`, which occurs once, its
replacement (`replace`), and the resulting fault (`breaks`). A change is made in a copy of the
package, never in place; `caught` has the rule and the seed that last caught it, or a test.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "kohort"
DATA = ROOT / "tests" / "planted" / "regions.toml"
_LIMIT_S = 900
_EXPLORED = "explored "
_OPTIONS = ("-q", "--tb=no", "-rf", "-n", "0", "-p", "no:cacheprovider")
# Prints the first rule that a seed breaks, and the seed.
_EXPLORE = """
import sys
from tests.simulation.exploring.search import explore
from tests.simulation.exploring.regions import SmallRegion
kinds = tuple(sys.argv[4].split(","))
found = explore(SmallRegion(*map(int, sys.argv[1:4]), kinds=kinds), 20_000)
print(found.violation, len(found.path)) if found.violation else None
"""
_RUN = """
import sys
from kohort.simulation.regions.running import run
from kohort.simulation.regions.scenario import draw
for seed in map(int, sys.argv[1:]):
    outcome = run(draw(seed))
    if not outcome.is_ok:
        print(outcome.verdict, seed, outcome.complaint[:150])
        break
"""


class Planted(Struct, frozen=True, kw_only=True):
    """A bug.

    Attributes:
        name: Its name.
        file: Path of the code, from the root.
        find: The text to replace, which occurs once.
        replace: The text that replaces it.
        breaks: The resulting fault.
        caught: The rule and the seed that catch it, or the test, or an explored size and
            the faults explored there; empty: nothing catches it.
        survives: Why nothing catches it.
        first: The rule and the seed that caught it in the first run; empty: none did.
    """

    name: str
    file: str
    find: str
    replace: str
    breaks: str
    caught: str = ""
    survives: str = ""
    first: str = ""

    @property
    def is_applicable(self) -> bool:
        """Whether the text to find occurs exactly once."""
        return (ROOT / self.file).read_text(encoding="utf-8").count(self.find) == 1


def planted(data: Path = DATA) -> dict[str, Planted]:
    """Return all bugs of a file by name."""
    entries = tomllib.loads(data.read_text(encoding="utf-8"))
    return {name: Planted(name=name, **entry) for name, entry in entries.items()}


def caught(bug: Planted, seeds: Sequence[int], copy: Path, code: str = _RUN) -> str:
    """Return the rule that the first failing seed breaks with the bug, the seed and the complaint.

    Args:
        bug: The bug.
        seeds: The seeds to run, in this order.
        copy: Folder of a copy of the package, which is restored afterwards.
        code: Program that runs the seeds, and prints the first broken rule.
    """
    original = ROOT / bug.file
    changed = copy / original.relative_to(PACKAGE.parent)
    text = original.read_text(encoding="utf-8")
    changed.write_text(text.replace(bug.find, bug.replace), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code, *map(str, seeds)]
    if bug.caught.startswith(_EXPLORED):
        command = [sys.executable, "-c", _EXPLORE, *bug.caught.split(maxsplit=4)[1:]]
    elif "::" in bug.caught:
        command = [sys.executable, "-m", "pytest", *_OPTIONS, bug.caught]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"- - no end within {_LIMIT_S} s"
    finally:
        shutil.copy2(original, changed)
    if "::" in bug.caught:
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
        return f"test {failed[0][7:150]}" if failed else ""
    return done.stdout.strip() or done.stderr.strip()[-200:]


def run(
    bugs: Sequence[Planted], seeds: Sequence[int], code: str = _RUN
) -> Iterator[tuple[Planted, str]]:
    """Plant bugs, one after the other, and yield the catch of each; see `caught`."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder) / PACKAGE.name)
        for each in bugs:
            yield each, caught(each, seeds, Path(folder), code)


def main(arguments: Sequence[str], data: Path = DATA, code: str = _RUN) -> int:
    """Plant the bugs of a file; exit with 1 if one is neither caught nor listed as a survivor."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bug", action="append", help="only this one")
    parser.add_argument("--seeds", type=int, default=40, help="most seeds for each bug")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args(arguments)
    bugs = planted(data)
    chosen = [bugs[name] for name in given.bug] if given.bug else list(bugs.values())
    missed = 0
    for bug, verdict in run(chosen, range(given.first, given.first + given.seeds), code):
        missed += not verdict and not bug.survives
        print(f"{bug.name:42} {verdict or 'NOT CAUGHT'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
