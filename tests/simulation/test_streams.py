"""Simulated stream applications: seeds, their repeatability, and what they have to reach."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter

import pytest

from kohort.simulation.runs.scenario import Weather
from kohort.simulation.seeded import OK
from kohort.simulation.streams.running import run, shrink
from kohort.simulation.streams.scenario import (
    GROUP_KINDS,
    OWN_KINDS,
    STEPS,
    StreamsScenario,
    draw,
    from_json,
    to_json,
)
from kohort.values import replace

# tests/system/simulation/test_seeds.py runs others each time.
SEEDS = (
    *range(12),
    20261657,  # a new leader of a changelog knows of less at first than a checkpoint says
)
BLOCKS = 4


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_rule_of_stream_applications_is_broken(block: int) -> None:
    """T1 to T8, see docs/simulation.md, and those of groups."""
    notes: Counter[str] = Counter()
    for seed in SEEDS[block::BLOCKS]:
        outcome = run(draw(seed))
        assert outcome.verdict == OK, (seed, outcome.complaint)
        notes += outcome.notes
    wanted = ("TaskStarted", "TaskReleased", "StateRestored", "RebalanceAsked")
    assert [each for each in wanted if not notes[each]] == []


PROGRAM = """
from kohort.simulation.streams.running import run
from kohort.simulation.streams.scenario import draw
print(*(run(draw(seed), trace=True).digest for seed in (3, 7)))
"""


def digests(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_seed_decides_everything() -> None:
    first, second = digests("1"), digests("4711")
    assert first == second
    assert len({*first}) == len(first) == 2


def test_a_run_leaves_nothing_behind(capfd: pytest.CaptureFixture[str]) -> None:
    """Also what processes were about to do that died, and those that still ran."""
    run(draw(5))
    gc.collect()
    assert capfd.readouterr() == ("", "")


def test_a_scenario_comes_back_from_its_file() -> None:
    for seed in range(20):
        assert from_json(to_json(draw(seed))) == draw(seed)


def test_every_kind_of_fault_and_every_step_is_drawn() -> None:
    drawn = [fault for seed in range(400) for fault in draw(seed).group.faults]
    assert {each.kind for each in drawn} == {*GROUP_KINDS, *OWN_KINDS}
    assert {each.detail for each in drawn if each.kind == "die_at_step"} == set(STEPS)


def test_a_failing_scenario_is_made_small() -> None:
    scenario = next(each for each in map(draw, range(1, 50)) if len(each.group.faults) > 4)
    wanted = scenario.group.faults[2]

    def fails(each: StreamsScenario) -> bool:
        return wanted in each.group.faults

    smallest = shrink(scenario, fails).group
    assert smallest == replace(scenario.group, faults=(wanted,), weather=Weather())
