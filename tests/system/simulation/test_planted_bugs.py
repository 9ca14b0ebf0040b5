"""Every bug planted in the machines is caught by a named checker, in groups and in regions."""

from __future__ import annotations

import pytest

import mutants
from kohort.simulation.regions.running import run
from kohort.simulation.regions.scenario import draw
from tests.region.test_planted import CAUGHT, missed
from tests.simulation.planting.catching import every

PARTS = 12
EVERY = list(every())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(PARTS))
def test_every_bug_is_caught(number: int) -> None:
    """First by the run that caught it last; then by other runs."""
    outcomes = mutants.run(mutants.known(mutants.part(EVERY, number, PARTS)), at_once=1)
    left = [each.name for each in outcomes if each.by is None]
    found = {each.name for each in mutants.search(left, 12, 60) if each.by is not None}
    assert [name for name in left if name not in found] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(PARTS))
def test_every_bug_of_a_region_is_caught(number: int) -> None:
    assert missed(CAUGHT[number::PARTS]) == []


@pytest.mark.timeout(900)
def test_without_a_bug_the_runs_of_regions_are_sound() -> None:
    seeds = sorted({int(seed) for seed, _, _ in CAUGHT})
    assert [each for each in seeds if not run(draw(each)).is_ok] == []
