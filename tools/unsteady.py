"""Try a failed test of the first tier again, where its failure may be an accident of the machine.

Only tests that start processes or wait for the network, and count no records, are tried again
(`tests/tiers.py` says which): in three fresh processes, one after the other. If each passes, the
run passes and names the test as unsteady, with the output of its failure, here and in
`build/unsteady.json`. Its cause then gets a line in `tests/unsteady.toml`, and is mended.
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
# More failures at once are no accident.
MOST = 5


class Failure(TypedDict):
    """A test that failed, as `tests/reporting.py` writes it."""

    test: str
    again: bool
    output: str


def forget() -> None:
    """Remove what an earlier run has left."""
    FAILURES.unlink(missing_ok=True)
    UNSTEADY.unlink(missing_ok=True)


def are_accidents(path: Path = FAILURES) -> bool:
    """Whether every failure of a run passes when it is tried again; says what it tried."""
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
    """Run one test in a process of its own."""
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command = [*words, "--quiet", "--no-header", test]
    return subprocess.run(command, cwd=install.ROOT, check=False).returncode == 0


def tell() -> None:
    """Name the unsteady tests of this run, with the output of their failures."""
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
