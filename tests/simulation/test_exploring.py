"""Every order of events of small groups; whole where that is quick, and how to explore further."""

from __future__ import annotations

import pytest

from kohort.simulation.exploring import Explorer


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    ("members", "perturbations"), [(1, 0), (1, 1), (2, 0)], ids=lambda value: str(value)
)
def test_a_small_group_is_right_in_every_order(
    assignor: str, members: int, perturbations: int
) -> None:
    """S1 and S3 in every state; L1 where nothing can happen any more."""
    explored = Explorer(members, 2, perturbations, assignor).explore(100_000)
    assert explored.violation == "", explored.path
    assert explored.is_complete


@pytest.mark.timeout(300)
def test_two_members_may_fail_in_any_order() -> None:
    """The first states of what `make explore` visits whole."""
    explored = Explorer(2, 2, 2).explore(50_000)
    assert explored.violation == "", explored.path
    assert explored.states == 50_000


def test_a_path_says_how_to_get_there() -> None:
    explorer = Explorer(1, 1, 0)
    explorer._wrong = lambda state: "done" if state.nodes[0].believes else ""  # type: ignore[method-assign]  # a rule for this test
    explored = explorer.explore(1_000)
    assert explored.violation == "done"
    assert explored.path[:2] == ["0 found", "0 request"]
    assert explored.path[-1] == "0 called"
