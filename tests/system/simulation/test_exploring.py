"""Every order of events of groups of two: all states, or the first 100,000."""

from __future__ import annotations

import pytest

from tests.simulation.exploring import PROTOCOLS, SmallGroup, explore
from tests.simulation.planting.catching import bugs

MOST = 100_000


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.timeout(300)
def test_two_members_are_right_in_every_order(protocol: str) -> None:
    """S1, S3, S13 in every state; L1: from each of them the group can settle.

    Two members of a group that migrates, of either kind, have more states than are visited here.
    """
    found = explore(SmallGroup(PROTOCOLS[protocol], 2, 2, 0), MOST)
    assert found.violation == "", found.path
    assert found.is_complete or protocol == "migration"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.timeout(300)
def test_two_things_may_go_wrong_at_any_moment(protocol: str) -> None:
    """S1, S3, S5, S7, S13, L1 with two members, two partitions and two perturbations.

    All states of the draft protocol, the first 100,000 of the others; `make explore` goes on.
    """
    found = explore(SmallGroup(PROTOCOLS[protocol], 2, 2, 2), MOST)
    assert found.violation == "", found.path
    assert found.is_complete or found.states >= MOST


def test_a_target_taken_at_once_is_found_where_members_assign() -> None:
    planted = next(bug for bug in bugs() if bug.name == "target at once")
    with planted.plant():
        found = explore(SmallGroup(PROTOCOLS["client-side"], 2, 2, 0), MOST)
    assert found.violation.startswith("S1"), found
