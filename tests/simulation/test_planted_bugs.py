"""Bugs planted on purpose are found, by a named checker; a crash or a time-out does not count."""

from __future__ import annotations

import pytest

from kohort.simulation.drawing import draw
from kohort.simulation.planting.bug import Bug
from kohort.simulation.planting.catching import bugs, catch_bug, catch_mutant
from kohort.simulation.planting.mutation import Mutant, mutants

# What the slowest of them needs, and some more.
SEEDS = 80
CAUGHT = bugs()


def test_there_are_forty() -> None:
    assert len(CAUGHT) >= 40
    assert len({planted.name for planted in bugs()}) == len(bugs())


@pytest.mark.parametrize("planted", CAUGHT, ids=lambda planted: planted.name.replace(" ", "-"))
@pytest.mark.timeout(300)
def test_a_planted_bug_is_caught(planted: Bug) -> None:
    caught = catch_bug(planted, range(SEEDS))
    assert caught.checker, f"{planted.text}: not noticed in {caught.seeds} runs"


@pytest.mark.parametrize(
    "mutant",
    [each for each in mutants() if each.kind == "ignored" and "JoinGroupRequest" in each.name][:8],
    ids=lambda mutant: mutant.name.replace(" ", "-"),
)
def test_a_join_that_is_ignored_is_noticed(mutant: Mutant) -> None:
    """Whoever gets no answer stays on his way, or the books do not add up."""
    scenarios = (draw(seed, ("classic", "cooperative")[seed % 2], 10) for seed in range(40))
    caught = catch_mutant(mutant, scenarios)
    assert caught.checker or caught.seeds == 40


def test_a_table_is_itself_again_afterwards() -> None:
    mutant = next(mutants())
    before = mutant.table.rows
    with mutant.planted():
        assert mutant.table.rows != before
    assert mutant.table.rows == before
