"""Run a program of this folder, or a script, in its own process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
DEADLINE_S = 100.0


def run(program: str, *arguments: str, script: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; if it hangs, show the stacks of its threads."""
    where = ["-c", program] if script else ["-m", f"tests.client.programs.{program}"]
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-u", *where, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        output, errors = process.communicate()
        raise AssertionError(f"not done in {DEADLINE_S} s\n{output}\n{errors}") from None
    return subprocess.CompletedProcess(program, process.returncode, output, errors)
