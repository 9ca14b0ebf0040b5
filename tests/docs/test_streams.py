"""The example of docs/streams.md, and the one in examples/, do what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_readme import python_blocks

ROOT = Path(__file__).parents[2]


def test_the_program_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = python_blocks((ROOT / "docs" / "streams.md").read_text())
    exec(compile(first, "streams.md", "exec"), {})
    assert capsys.readouterr().out == "BOEING 0 1\nBOEING 0 2\n"


def test_the_page_runs_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    _, second = python_blocks((ROOT / "docs" / "streams.md").read_text())
    exec(compile(second, "streams.md", "exec"), {})
    assert capsys.readouterr().out == "a 1 1\na 3 3\na 6 6\n"


def test_instances_of_the_example_come_and_go() -> None:
    result = play_delays("--quick")
    assert result["flights"] >= 3_000
    assert result["wrong_totals"] == 0
    assert result["tasks_handed_over"] > 0


def play_delays(*options: str) -> dict[str, int]:
    """Return what examples/delays_app.py says in the end."""
    command = [sys.executable, str(ROOT / "examples" / "delays_app.py"), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_the_example_runs_without_a_broker() -> None:
    command = [sys.executable, str(ROOT / "examples" / "streams_topology.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "after the move: [('N14228', 11), ('N24211', 20)]",
        "totals: [('N14228', 11), ('N24211', 20), ('N14228', 15)]",
        "BOEING: 2 flights from minute 0 on",
        "dead letter: b'not JSON' because of b'JSONDecodeError'",
    ]
    assert "flights-" in done.stderr  # the WARNING names the record
