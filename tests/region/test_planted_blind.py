"""The bugs that were written blind: each is listed with what catches it, and some are planted."""

from __future__ import annotations

import pytest

import plant_regions

BUGS = plant_regions.planted()
# By a rule of the simulation; `make plant-regions` plants all.
BY_RULE = [each for each in BUGS.values() if each.caught[:1] == "R"]
SOME = BY_RULE[::6]


def test_each_bug_is_caught_or_listed_with_a_reason() -> None:
    assert len(BUGS) == 58
    assert [name for name, bug in BUGS.items() if bool(bug.caught) == bool(bug.survives)] == []
    assert [name for name, bug in BUGS.items() if not bug.is_applicable] == []


@pytest.mark.timeout(300)
def test_some_are_caught_by_the_rule_that_caught_them_last() -> None:
    seeds = {each.name: each.caught.split() for each in SOME}
    found = {}
    for bug in SOME:
        ((_, verdict),) = plant_regions.run([bug], [int(seeds[bug.name][1])])
        found[bug.name] = verdict.split()[:2]
    assert found == seeds
