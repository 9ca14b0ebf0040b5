"""`kohort demo --quick` from the first act to the verdict, as a region and as a group alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

APPLICATIONS = {"north", "south", "west"}


def played(out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Play the demo, and return its exit code and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "kohort", "demo", "--quick", "--json", "--out", str(out), *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.timeout(300)
def test_a_region_shows_consistent_cuts_alone(tmp_path: Path) -> None:
    code, told = played(tmp_path, "--group-protocol", "cooperative")
    assert (code, told["reasons"]) == (0, [])
    assert (told["flights"], told["lost"], told["twice"], told["lag"]) == (336_776, 0, 0, 0)
    assert told["region"]["snapshots"] >= 5
    assert told["region"]["wrong"] is None
    assert told["region"]["resets"] >= 1
    assert told["reread"] > 0
    assert {*told["written_by"]} == APPLICATIONS
    report = (tmp_path / "report.html").read_text()
    assert "one consistent region, three applications" in report
    assert "All were consistent cuts" in report


@pytest.mark.timeout(300)
def test_a_group_alone_has_each_flight_once(tmp_path: Path) -> None:
    code, told = played(tmp_path, "--no-region")
    assert (code, told["reasons"], told["region"]) == (0, [], None)
    assert (told["flights"], told["lost"], told["twice"], told["lag"]) == (336_776, 0, 0, 0)
    assert {*told["written_by"]} == APPLICATIONS
    assert "one group, three applications" in (tmp_path / "report.html").read_text()


@pytest.mark.timeout(300)
def test_a_source_that_commits_too_early_loses_flights_and_the_demo_says_so(tmp_path: Path) -> None:
    code, told = played(tmp_path, "--sabotage")
    missing = told["lost"]
    assert (code, told["passed"], told["region"]) == (1, False, None)
    assert told["flights"] + missing == 336_776
    assert missing > 0
    assert f"{missing:,} flights are not in the table" in told["reasons"]
    assert "are not in the table" in (tmp_path / "report.html").read_text()
