"""The optimal assignors compared with an exact solver: no result is better by any goal."""

from __future__ import annotations

import random

import pytest

from kohort.group.assignors.problem import build, by_member, solve
from tests.group.assignors.cases import random_case, score
from tests.group.assignors.exact import by_definition, by_squares, optimum

BLOCKS = 20
BLOCK = 1000


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a11_a12_a13_nothing_is_better_than_the_result(block: int) -> None:
    """A3, with 20,000 random groups: loads, and for these the moves, equal the exact solver's."""
    rng = random.Random(block)
    defined = 0
    for _ in range(BLOCK):
        case = random_case(rng)
        problem = build(case.cluster, case.subscriptions)
        ours = score(case, by_member(problem, solve(problem)))
        weight = by_definition(case)
        defined += weight is not None
        assert ours == optimum(case, weight or by_squares(case)), case
    assert defined > BLOCK / 4


def test_both_weights_of_the_exact_solver_agree() -> None:
    rng = random.Random(77)
    for _ in range(500):
        case = random_case(rng)
        weight = by_definition(case)
        if weight is not None:
            assert optimum(case, weight) == optimum(case, by_squares(case))


def test_a16_racks_count_last_and_as_much_as_they_can() -> None:
    """KIP-881: of the assignments with the fewest moves, one with the most partitions nearby."""
    rng = random.Random(881)
    for _ in range(2000):
        case = random_case(rng, racks=True)
        problem = build(case.cluster, case.subscriptions)
        assert score(case, by_member(problem, solve(problem))) == optimum(case, by_squares(case))
