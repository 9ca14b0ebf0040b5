"""Plays examples/region.py as a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "region.py"


def played(out: Path, *options: str, timeout_s: float) -> tuple[dict[str, int], str]:
    """Play the story, and return its result and what it told.

    Raises:
        AssertionError: It failed, or the table is not what was sent.
    """
    command = [sys.executable, str(PROGRAM), "--json", "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, int] = json.loads(done.stdout)
    assert (result["missing"], result["too_many"]) == (0, 0)
    assert f"{result['flights']:,} flights, a cut" in done.stderr
    return result, done.stderr
