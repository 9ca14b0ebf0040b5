"""Rerun a failed test of the first tier if the failure may be caused by the machine.

Only tests that start processes or wait for the network, and count no records, are rerun
(`tests/tiers.py` selects them): in three fresh processes, one after the other. If each passes, the
run passes and reports the test as unsteady, with the output of its failure, here and in
`build/unsteady.json`. Its cause must then be listed in `tests/unsteady.toml` and fixed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

import install

FAILURES = install.ROOT / "build" / "failures.json"
UNSTEADY = install.ROOT / "build" / "unsteady.json"
TIMES = 3
# More failures at once are not accidental.
MOST = 5


class Failure(TypedDict):
    """A failed test, as written by `tests/reporting.py`."""

    test: str
    again: bool
    output: str


def forget() -> None:
    """Remove the files of an earlier run."""
    FAILURES.unlink(missing_ok=True)
    UNSTEADY.unlink(missing_ok=True)


def are_accidents(path: Path = FAILURES) -> bool:
    """Rerun every failure of a run, with a message for each; return whether all of them pass."""
    failures: list[Failure] = json.loads(path.read_text()) if path.exists() else []
    if not failures or len(failures) > MOST or not all(each["again"] for each in failures):
        return False
    for failure in failures:
        for time in range(1, TIMES + 1):
            print(f"\ntrying again, {time} of {TIMES}: {failure['test']}", flush=True)
            if not passes(failure["test"]):
                return False
    UNSTEADY.write_text(json.dumps(failures, indent=1))
    return True


def passes(test: str) -> bool:
    """Run one test in a separate process."""
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command = [*words, "--quiet", "--no-header", test]
    return subprocess.run(command, cwd=install.ROOT, check=False).returncode == 0


def tell() -> None:
    """Print the unsteady tests of this run, with the output of their failures."""
    if not UNSTEADY.exists():
        return
    found: list[Failure] = json.loads(UNSTEADY.read_text())
    for each in found:
        print(f"\nUNSTEADY: {each['test']}\n{each['output']}", flush=True)
    print(
        f"UNSTEADY: {len(found)} failed once and passed {TIMES} times since (build/unsteady.json)."
        " Find the cause, and write it into tests/unsteady.toml until it is mended.",
        flush=True,
    )
