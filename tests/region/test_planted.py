"""Planted bugs: each is caught by a named rule in the run that is written down beside it.

`planted.txt` has the catches of a search through the first seeds; docs/region-rules.md says what
survived it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.simulation.regions.planting import bugs, caught_by
from kohort.simulation.regions.running import run
from kohort.simulation.regions.scenario import draw

BUGS = {each.name: each for each in bugs()}
LINES = (Path(__file__).parent / "planted.txt").read_text(encoding="utf-8").splitlines()
CAUGHT = [tuple(line.split(maxsplit=2)) for line in LINES]


def test_the_list_names_bugs_that_there_are() -> None:
    assert {name for _, _, name in CAUGHT} <= BUGS.keys()
    assert len(CAUGHT) > 50


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(8))
def test_a_planted_bug_is_caught(part: int) -> None:
    missed = []
    for seed, rule, name in CAUGHT[part::8]:
        found, _ = caught_by(BUGS[name], [draw(int(seed))])
        if found != rule:
            missed.append((name, rule, found))
    assert missed == []


def test_without_a_bug_those_runs_are_sound() -> None:
    seeds = sorted({int(seed) for seed, _, _ in CAUGHT})
    assert [each for each in seeds if not run(draw(each)).is_ok] == []
