"""Bugs planted on purpose are found, by a named checker; a crash or a time-out does not count."""

from __future__ import annotations

import pytest

import mutants
from tests.simulation.planting.bug import Bug
from tests.simulation.planting.catching import Try, bugs, every, is_sound

# One part of the bugs is planted here, all in tests/system/simulation/test_planted_bugs.py.
PARTS = 12
# What survives is listed by name with the reason; five in a hundred may.
MOST_SURVIVORS = 0.05
EVERY = every()
CATCHES, SURVIVORS = mutants.read(mutants.CATCHES), mutants.read(mutants.SURVIVORS)


def test_there_are_forty_by_hand_and_each_is_caught() -> None:
    assert len(bugs()) >= 40
    assert [each.name for each in bugs() if each.name not in CATCHES] == []


@pytest.mark.parametrize("each", bugs(), ids=lambda each: each.name)
def test_each_by_hand_has_what_it_changes(each: Bug) -> None:
    with each.plant():
        pass


def test_every_bug_is_caught_or_listed_with_a_reason() -> None:
    """And nothing is listed that is no bug any more, because its row has changed."""
    assert CATCHES.keys() & SURVIVORS.keys() == set()
    assert CATCHES.keys() | SURVIVORS.keys() == EVERY.keys()
    assert [name for name, reason in SURVIVORS.items() if len(reason) < 20] == []


def test_few_survive() -> None:
    by_machine = [name for name, each in EVERY.items() if not isinstance(each, Bug)]
    assert len(SURVIVORS) <= len(by_machine) * MOST_SURVIVORS


@pytest.mark.timeout(300)
def test_a_part_is_caught() -> None:
    """By the run that caught it last."""
    names = mutants.part(list(EVERY), 0, PARTS)
    outcomes = mutants.run(mutants.known(names), at_once=1)
    assert [each.name for each in outcomes if each.by is None] == []


def test_the_parts_are_all_and_none_is_tried_twice() -> None:
    names = list(EVERY)
    parts = [mutants.part(names, number, PARTS) for number in range(PARTS)]
    assert sorted(name for some in parts for name in some) == sorted(names)


def test_a_run_is_written_as_it_is_read() -> None:
    for each in (Try("classic", 7), Try("consumer", 0, "retention")):
        assert Try.read(str(each)) == each


def test_a_run_counts_only_when_nothing_is_wrong_without_the_bug() -> None:
    assert is_sound(Try("classic", 1))


@pytest.mark.parametrize("protocol", ["classic", "draft"])
@pytest.mark.parametrize("aim", ["retention", "visits", "failovers", "answers"])
def test_what_a_run_is_aimed_with_is_no_bug(aim: str, protocol: str) -> None:
    assert is_sound(Try(protocol, 1, aim))


def test_a_table_is_itself_again_afterwards() -> None:
    mutant = next(each for each in EVERY.values() if not isinstance(each, Bug))
    before = mutant.table.rows
    with mutant.planted():
        assert mutant.table.rows != before
    assert mutant.table.rows == before
