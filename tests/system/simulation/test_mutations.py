"""Each known change of our code is noticed by the test of its rule: all of `tests/mutations`."""

from __future__ import annotations

import pytest

import mutations

PARTS = 16
EVERY = list(mutations.changes().values())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(PARTS))
def test_every_change_is_noticed(number: int) -> None:
    outcomes = mutations.run(mutations.part(EVERY, number, PARTS))
    assert [outcome for outcome in outcomes if not outcome.noticed] == []
