"""Random tables, beside what deltalake's own writer makes of them; 480 more in the second tier."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.delta.differential import filters_find_all_rows, is_as_deltalake_writes_it
from tests.delta.random_tables import KINDS, NAMES, drawn

FEW = range(20)


@pytest.mark.parametrize("seed", FEW)
def test_a_table_is_as_deltalake_would_have_written_it(seed: int, tmp_path: Path) -> None:
    is_as_deltalake_writes_it(seed, tmp_path)


@pytest.mark.parametrize("seed", FEW)
def test_filters_find_all_rows(seed: int, tmp_path: Path) -> None:
    filters_find_all_rows(seed, tmp_path)


def test_nothing_is_left_undrawn() -> None:
    seen: Counter[str] = Counter()
    for seed in range(500):
        drawn(seed, seen)
    wanted = {
        *(f"type {name}" for name in KINDS),
        *(f"name {name}" for name in NAMES),
        *(f"nulls {share}" for share in ("none", "some", "all")),
    }
    assert seen.keys() == wanted, seen
    assert min(seen.values()) > 50, seen
