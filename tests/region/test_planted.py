"""Planted bugs: each is caught by a named rule in the run that is written down beside it.

`planted.txt` has the catches of a search through the first seeds; docs/internals/region-rules.md
says what survived it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.simulation.regions.scenario import draw
from tests.simulation.planting.regions import bugs, caught_by

BUGS = {each.name: each for each in bugs()}
LINES = (Path(__file__).parent / "planted.txt").read_text(encoding="utf-8").splitlines()
CAUGHT = [tuple(line.split(maxsplit=2)) for line in LINES]


def test_the_list_names_bugs_that_there_are() -> None:
    assert {name for _, _, name in CAUGHT} <= BUGS.keys()
    assert len(CAUGHT) > 50


def missed(catches: list[tuple[str, ...]]) -> list[tuple[str, str, str]]:
    """Plant bugs: those that another rule finds in their run, or none."""
    found = (
        (name, rule, caught_by(BUGS[name], [draw(int(seed))])[0]) for seed, rule, name in catches
    )
    return [each for each in found if each[1] != each[2]]


@pytest.mark.timeout(300)
def test_some_planted_bugs_are_caught() -> None:
    """One in eight; tests/system/simulation/test_planted_bugs.py plants all."""
    assert missed(CAUGHT[::8]) == []
