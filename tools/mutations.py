"""Break one rule at a time, and check that a test of the rule detects it: `make mutations`.

`tests/mutations/*.toml` has one small change of our code for each rule, a table `[C10]`: in `file`,
the text `find`, which occurs once, is replaced with `replace`; then `test` fails (the fastest of
those that carry the rule's id), because of the fault described in `breaks`. If no change can break
a rule, `none` gives the reason.

A change is made in a copy of the package, never in place. It counts as detected if the test passes
without it and fails with it through an assertion or one of our own errors, but not because the code
cannot be imported or does not end.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "kohort"
DATA = ROOT / "tests" / "mutations"
AT_ONCE = 2
TEST_TIMEOUT_S = 120
# Output of a test that detected the change; otherwise the change only broke the code.
NOTICED = re.compile(r"AssertionError|assert |Failed: DID NOT RAISE|kohort\.[\w.]+: ")
OPTIONS = (
    *("-q", "--tb=no", "-rfE", f"--timeout={TEST_TIMEOUT_S}", "--hypothesis-seed=0"),
    *("-p", "no:randomly", "-p", "no:cacheprovider"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of our code, and the test that detects it.

    Attributes:
        rule: Id of the rule that it breaks.
        file: Path of the code, from the root.
        find: The text to replace, which occurs once.
        replace: The text that replaces it.
        test: Node id of the test.
        breaks: The resulting fault.
    """

    rule: str
    file: str
    find: str
    replace: str
    test: str
    breaks: str

    @property
    def is_applicable(self) -> bool:
        """Whether the text to find occurs exactly once."""
        path = ROOT / self.file
        return path.is_file() and path.read_text(encoding="utf-8").count(self.find) == 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a change: how the test failed, or why that is not enough."""

    change: Change
    noticed: bool
    words: str
    seconds: float = 0.0


def changes() -> dict[str, Change]:
    """Return the changes by rule."""
    return {rule: Change(rule, **entry) for rule, entry in entries() if "none" not in entry}


def reasons() -> dict[str, str]:
    """Return the reason for each rule without a change."""
    return {rule: entry["none"] for rule, entry in entries() if "none" in entry}


def entries() -> Iterable[tuple[str, dict[str, str]]]:
    """Return the entry of each rule in the files, in order."""
    for path in sorted(DATA.glob("*.toml")):
        yield from tomllib.loads(path.read_text(encoding="utf-8")).items()


def part(every: Sequence[Change], number: int, parts: int) -> list[Change]:
    """Return one of several parts; the number may be of any size, the parts are taken in turn."""
    return list(every[number % parts :: parts])


def run(chosen: Sequence[Change]) -> list[Outcome]:
    """Apply changes, two at a time."""
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(min(AT_ONCE, len(chosen))):
            copy = Path(folder) / str(number)
            shutil.copytree(PACKAGE, copy / PACKAGE.name)
            copies.put(copy)
        bad = _failures(run_tests(Path(folder) / "0", sorted({each.test for each in chosen})))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda change: _try(change, copies, bad), chosen))


def _try(change: Change, copies: SimpleQueue[Path], bad: dict[str, str]) -> Outcome:
    if not change.is_applicable:
        return Outcome(change, False, "what is to be replaced is not there, or not once")
    if any(test.partition("[")[0] == change.test.partition("[")[0] for test in bad):
        return Outcome(change, False, "the test fails without the change too")
    copy = copies.get()
    started = time.monotonic()
    try:
        done = _run_changed(change, copy)
    finally:
        copies.put(copy)
    noticed, words = judge(done)
    return Outcome(change, noticed, words, time.monotonic() - started)


def _run_changed(change: Change, copy: Path) -> subprocess.CompletedProcess[str]:
    """Apply a change to a copy of the package, run its test, and revert the change."""
    original = ROOT / change.file
    changed = copy / original.relative_to(PACKAGE.parent)
    text = original.read_text(encoding="utf-8")
    changed.write_text(text.replace(change.find, change.replace), encoding="utf-8")
    try:
        return run_tests(copy, [change.test])
    finally:
        shutil.copy2(original, changed)


def run_tests(copy: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run tests with the package in `copy`, always with the same examples."""
    env = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(copy / "hypothesis"),
        "COLUMNS": "1000",
    }
    command = [sys.executable, "-m", "pytest", *OPTIONS, *tests]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def judge(done: subprocess.CompletedProcess[str]) -> tuple[bool, str]:
    """Return whether a test detected the change, and its message."""
    failures = _failures(done)
    if done.returncode == 0:
        return False, "survives"
    if done.returncode != 1 or not failures:
        return False, f"pytest ended with {done.returncode}"
    words = next(iter(failures.values()))
    return bool(NOTICED.match(words)), words


def _failures(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return pytest's summary line of each test that did not pass."""
    lines = (line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    named = (line.partition(" ")[2].partition(" - ") for line in lines)
    return {test: words for test, _, words in named}


def chosen_by(options: argparse.Namespace) -> list[Change]:
    """Return the changes selected on the command line."""
    every = changes()
    if options.rule:
        return [every[rule] for rule in options.rule]
    number, _, parts = options.part.partition("/")
    return part(list(every.values()), int(number), int(parts))


def main(arguments: Sequence[str]) -> int:
    """Apply all or some changes, and print the result of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rule", action="append", help="only the change of this rule")
    parser.add_argument("--part", default="0/1", help="N/M: only the Nth of M parts")
    started = time.monotonic()
    outcomes = run(chosen_by(parser.parse_args(arguments)))
    for each in outcomes:
        verdict = "noticed" if each.noticed else "NOT NOTICED"
        print(f"{each.change.rule:4} {verdict:11} {each.seconds:5.1f} s  {each.words[:110]}")
    noticed = sum(each.noticed for each in outcomes)
    print(f"{noticed} of {len(outcomes)} noticed in {time.monotonic() - started:.0f} s")
    return 0 if noticed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
