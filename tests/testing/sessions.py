"""Tests in sessions of their own, as projects that have kohort installed run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from msgspec import Struct

EXAMPLES = Path(__file__).parents[2] / "examples" / "testing"


class Bug(Struct, frozen=True):
    """A mistake in an example, as people make it.

    Attributes:
        file: The example.
        right: What it has.
        wrong: What it has with the mistake.
        found_by: The test that fails then.
    """

    file: str
    right: str
    wrong: str
    found_by: str


def session(folder: Path, code: str, *options: str) -> str:
    """Run the tests of a file."""
    (folder / "test_service.py").write_text(code)
    return ran(folder, *options)


def ran(folder: Path, *options: str, timeout_s: float = 110) -> str:
    """Run the tests of a folder; return what pytest says."""
    off = ("cacheprovider", "randomly", "hypothesispytest")
    command = [sys.executable, "-m", "pytest", "-q", *(f"-pno:{name}" for name in off)]
    done = subprocess.run(
        [*command, "--rootdir", str(folder), str(folder), *options],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=folder,
    )
    return done.stdout + done.stderr


def example(folder: Path, name: str, bug: Bug | None = None) -> None:
    """Copy an example into a folder, with a bug if there is one."""
    text = (EXAMPLES / name).read_text()
    if bug is not None:
        assert text.count(bug.right) == 1, f"{name} has {text.count(bug.right)} of {bug.right}"
        text = text.replace(bug.right, bug.wrong)
    (folder / name).write_text(text)


def assert_found(folder: Path, *bugs: Bug, timeout_s: float = 110) -> None:
    """Examples must pass as they are, and with bugs fail in the tests that look for these."""
    for bug in bugs:
        example(folder, bug.file)
    said = ran(folder, timeout_s=timeout_s)
    assert " passed" in said, said
    assert "failed" not in said, said
    for bug in bugs:
        example(folder, bug.file, bug)
    said = ran(folder, timeout_s=timeout_s)
    failed = {line.split()[1] for line in said.splitlines() if line.startswith("FAILED ")}
    assert failed == {f"{bug.file}::{bug.found_by}" for bug in bugs}, said
