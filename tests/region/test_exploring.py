"""Every order of events of small regions: all states where that is quick, else the first ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.simulation.exploring.regions import KINDS, SmallRegion
from tests.simulation.exploring.regions.state import State
from tests.simulation.exploring.search import explore
from tests.simulation.planting.regions import bugs

MOST = 1_000


@pytest.mark.parametrize(("operators", "partitions"), [(1, 1), (2, 1)])
@pytest.mark.timeout(300)
def test_an_undisturbed_region_is_right_in_every_order(operators: int, partitions: int) -> None:
    """R1, R2, R3, R7, R8, R10, R11, S17 in every state; L1: from each the region can settle."""
    found = explore(SmallRegion(operators, partitions, 0), MOST)
    assert found.violation == "", found.path
    assert found.is_complete


@pytest.mark.timeout(300)
def test_two_things_may_go_wrong_at_any_moment() -> None:
    """The first states of two operators and two partitions; `make explore-regions` goes on."""
    found = explore(SmallRegion(2, 2, 2), MOST)
    assert found.violation == "", found.path
    assert found.is_complete or found.states >= MOST


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(300)
def test_each_thing_may_go_wrong_at_any_moment(kind: str) -> None:
    """All states of one operator that reads one partition, or the first ones."""
    found = explore(SmallRegion(1, 1, 1, kinds=(kind,)), MOST)
    assert found.violation == "", found.path


# ------------------------------------------------------------------------------ it does find bugs


def _by_name(name: str) -> AbstractContextManager[None]:
    return next(planted for planted in bugs() if planted.name == name).plant()


_PLANTED = [
    ("by hand: complete forgets state references", 2, ("rebalance",), "R7"),
    ("by hand: complete is one record too far", 2, (), "R2"),
    ("by hand: a reset goes back to the start", 1, ("ask reset",), "R"),
    ("by hand: reset-done is not remembered", 1, ("ask reset",), "L1"),
]


@pytest.mark.parametrize(("name", "operators", "kinds", "rule"), _PLANTED)
@pytest.mark.timeout(300)
def test_a_planted_bug_is_found(
    name: str, operators: int, kinds: tuple[str, ...], rule: str
) -> None:
    with _by_name(name):
        found = explore(SmallRegion(operators, 1, len(kinds), kinds=kinds), 2 * MOST)
    assert found.violation.startswith(rule), found
    assert found.path


# -------------------------------------------------------------------- which states are the same


class _Compared(SmallRegion):
    """Works each state's steps out whenever it is met, not only the first time."""

    after: dict[Hashable, frozenset[Hashable]]
    met_again = 0

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for what, after in super().steps(state):
            self._compare(after)
            yield what, after

    def perturbations(self, state: State) -> Iterator[tuple[str, State]]:
        for what, after in super().perturbations(state):
            self._compare(after)
            yield what, after

    def _compare(self, state: State) -> None:
        key = self.key(state)
        after = frozenset(self.key(each) for _, each in super().steps(state))
        after |= {self.key(each) for _, each in super().perturbations(state)}
        known = self.after.setdefault(key, after)
        assert known == after, "two states have one key, and are not the same"
        self.met_again += known is not after


@pytest.mark.timeout(300)
def test_states_that_count_as_one_lead_to_the_same_states() -> None:
    """However a state was reached: numbers differ, what can happen does not."""
    model = _Compared(2, 1, 1)
    model.after = {}
    explore(model, 300)
    assert model.met_again > 50
