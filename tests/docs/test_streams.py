"""The example of docs/streams.md, and the one in examples/, do what they say."""

from __future__ import annotations

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


def test_two_instances_of_the_example_hand_over() -> None:
    command = [sys.executable, str(ROOT / "examples" / "streams_delays.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "one instance: 5000",
        "after the move: 15000",
        "asked for D-007: 750",
    ]


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
