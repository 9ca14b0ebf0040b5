"""480 random tables, after the 20 of the first tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.delta.differential import (
    filters_find_all_rows,
    is_as_deltalake_writes_it,
    is_refused_by_both,
)


@pytest.mark.parametrize("seed", range(20, 500))
def test_a_table_is_as_deltalake_would_have_written_it(seed: int, tmp_path: Path) -> None:
    if not is_refused_by_both(seed, tmp_path):
        is_as_deltalake_writes_it(seed, tmp_path)
        filters_find_all_rows(seed, tmp_path / "filtered")
