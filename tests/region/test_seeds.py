"""Simulated regions: seeds, their repeatability, and what they have to reach."""

from __future__ import annotations

from collections import Counter

import pytest

from kohort.simulation.regions.running import run, shrink
from kohort.simulation.regions.scenario import (
    KINDS,
    RegionScenario,
    draw,
    from_json,
    to_json,
)
from kohort.values import replace

# tests/system/simulation/test_seeds.py runs others each time.
SEEDS = (
    *range(64),
    20261257,  # a partition that was released comes back, and is cut before it is read
    273836720,  # the group takes more back while the listener of an earlier revocation returns
)
BLOCKS = 8


@pytest.fixture(scope="module")
def notes() -> Counter[str]:
    return Counter()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_rule_of_a_region_is_broken(block: int) -> None:
    """R1 to R17, see docs/internals/region-rules.md."""
    broken = []
    for seed in SEEDS[block::BLOCKS]:
        outcome = run(draw(seed))
        if not outcome.is_ok:
            broken.append((seed, outcome.complaint))
    assert broken == []


def test_a_seed_decides_everything() -> None:
    first, second = (run(draw(7), trace=True) for _ in range(2))
    assert first.digest == second.digest != ""
    assert first.events > 1_000


def test_a_scenario_comes_back_from_its_file() -> None:
    for seed in range(20):
        assert from_json(to_json(draw(seed))) == draw(seed)


def test_every_kind_of_fault_is_drawn() -> None:
    drawn = {fault.kind for seed in range(300) for fault in draw(seed).faults}
    assert drawn == set(KINDS)


def test_a_failing_scenario_is_made_small() -> None:
    scenario = next(each for each in map(draw, range(1, 50)) if len(each.faults) > 4)
    wanted = scenario.faults[2]

    def fails(each: RegionScenario) -> bool:
        return wanted in each.faults

    smallest = shrink(scenario, fails)
    assert smallest == replace(
        smallest, faults=(wanted,), repeated=0.0, lost_requests=0.0, joiners=()
    )


def test_an_outcome_says_what_happened() -> None:
    outcome = run(draw(3), keep_lines=True)
    assert outcome.is_ok
    assert outcome.notes["visible"] > 3
    assert any("complete/" in line for line in outcome.lines)
