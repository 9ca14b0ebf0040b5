"""The seeds of `make test`: first what failed once, then a fleet that must go everywhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from kohort.simulation.coverage import NOT_REQUIRED, RARE, TABLES, counted, label, must_hit
from kohort.simulation.runs.drawing import PALETTE, draw
from kohort.simulation.runs.fleet import Summary, run_all, scenarios
from kohort.simulation.runs.running import run
from kohort.simulation.runs.scenario import from_toml
from tests.simulation.size import FLEET

SEEDS = Path(__file__).parents[1] / "seeds"


@pytest.mark.parametrize("path", sorted(SEEDS.glob("*.toml")), ids=lambda path: path.stem)
def test_what_failed_once_does_not_fail_again(path: Path) -> None:
    outcome = run(from_toml(path.read_text(encoding="utf-8")))
    assert outcome.is_ok, outcome.complaint


@pytest.fixture(scope="module")
def fleet() -> tuple[Summary, Counter[str]]:
    with counted() as taken:
        return run_all(scenarios(FLEET)), taken


@pytest.mark.timeout(1_000)
def test_no_rule_is_broken(fleet: tuple[Summary, Counter[str]]) -> None:
    """S1-S18, L1-L8 after every event."""
    summary, _ = fleet
    found = [
        (each.scenario.protocol, each.scenario.seed, each.complaint) for each in summary.failed
    ]
    assert found == []


@pytest.mark.timeout(1_000)
def test_every_row_is_taken(fleet: tuple[Summary, Counter[str]]) -> None:
    """A row that no seed takes is not tested: choose other seeds (tests/simulation/size.py)."""
    _, taken = fleet
    assert [row for row in must_hit() if not taken[row]] == []


@pytest.mark.timeout(1_000)
def test_every_fault_and_rare_event_happens(fleet: tuple[Summary, Counter[str]]) -> None:
    summary, _ = fleet
    assert [name for name in RARE if not summary.notes[name]] == []
    assert [kind for kind in PALETTE if not summary.notes[f"fault {kind}"]] == []


def test_rows_that_need_not_be_taken_exist() -> None:
    rows = [label(table, line) for table in TABLES for line in table.rows]
    unknown = [end for end in NOT_REQUIRED if not any(row.endswith(end) for row in rows)]
    assert unknown == []
    assert len(must_hit()) > 150


def test_a_seed_is_worth_running() -> None:
    """At least ten minutes, three members and, in the median, five faults."""
    drawn = [draw(seed) for seed in range(300)]
    assert min(each.minutes for each in drawn) >= 10
    assert min(len(each.members) for each in drawn) >= 3
    assert median(len(each.faults) for each in drawn) >= 5
