"""Bugs planted into stream applications: each is listed with what catches it; one is planted."""

from __future__ import annotations

import pytest

import plant_regions
import plant_streams

BUGS = plant_regions.planted(plant_streams.DATA)
SOME = "checkpoint-before-flush"


def test_each_bug_is_caught_or_listed_with_a_reason() -> None:
    assert len(BUGS) == 60
    assert [name for name, bug in BUGS.items() if bool(bug.caught) == bool(bug.survives)] == []
    assert [name for name, bug in BUGS.items() if not bug.is_applicable] == []


def test_each_test_that_is_listed_is_there() -> None:
    listed = [bug.caught.split("::") for bug in BUGS.values() if "::" in bug.caught]
    texts = {file: (plant_regions.ROOT / file).read_text(encoding="utf-8") for file, _ in listed}
    assert [name for file, name in listed if f"def {name}(" not in texts[file]] == []


@pytest.mark.timeout(300)
def test_one_is_caught_by_the_rule_that_caught_it_last() -> None:
    """`make plant-streams` plants all."""
    rule, seed = BUGS[SOME].caught.split()
    ((_, verdict),) = plant_regions.run([BUGS[SOME]], [int(seed)], plant_streams.CODE)
    assert verdict.split()[:2] == [rule, seed]
