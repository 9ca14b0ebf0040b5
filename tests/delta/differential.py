"""What must hold of a table that is appended to: it is as deltalake's own writer would write it."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from kohort.delta.append import TableAppend
from kohort.delta.columns import check_times_in_maps
from kohort.delta.positions import DeltaAppendError
from tests.delta.random_tables import TableRows, drawn

COMPARISONS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)


def is_refused_by_both(seed: int, folder: Path) -> bool:
    """Whether deltalake cannot make the table; then it is refused, and nothing is left behind."""
    table = drawn(seed, Counter())
    try:
        check_times_in_maps(table.schema, None, "")
    except DeltaAppendError:
        with pytest.raises(DeltaAppendError, match="is a map with times"):
            TableAppend(folder / "ours", "g").append(TableRows([table]), table.schema, 0)
        assert not folder.joinpath("ours").exists()
        with pytest.raises(DeltaError, match="timestampNtz"):
            write_deltalake(folder / "theirs", table)
        return True
    return False


def is_as_deltalake_writes_it(seed: int, folder: Path) -> None:
    """A random table has the same schema and rows as one that deltalake has written."""
    table = drawn(seed, Counter())
    half = len(table) // 2
    ours, theirs = folder / "ours", folder / "theirs"
    TableAppend(ours, "g").append(TableRows([table[:half], table[half:]]), table.schema, 0)
    write_deltalake(theirs, table)
    assert DeltaTable(ours).schema() == DeltaTable(theirs).schema()
    for path in (ours, theirs):
        found = DeltaTable(path).to_pyarrow_table().select(table.schema.names)
        assert found.sort_by("offset").to_pylist().__repr__() == table.to_pylist().__repr__()


def filters_find_all_rows(seed: int, folder: Path) -> None:
    """Readers pass over files by what their statistics say; they must not pass over a row."""
    table = drawn(seed, Counter())
    half = (len(table) + 1) // 2
    append = TableAppend(folder, "g", optimize_every=2)
    for number, part in enumerate((table[:half], table[half:])):
        append.append(TableRows([part]), table.schema, number)
        seen = table[: half + number * len(part)]
        files = DeltaTable(folder).to_pyarrow_dataset()
        for condition in conditions(seen):
            found = files.to_table(columns=["offset"], filter=condition)["offset"].to_pylist()
            wanted = seen.filter(condition)["offset"].to_pylist()
            assert sorted(found) == wanted, str(condition)


def conditions(table: pa.Table) -> Iterator[pc.Expression]:
    """Each comparison of each column with each of its values, and whether it is null."""
    for column in table.schema:
        yield pc.field(column.name).is_null()
        yield pc.field(column.name).is_valid()
        if pa.types.is_nested(column.type):
            continue
        for value in table[column.name].drop_null().unique():
            for compare in COMPARISONS:
                yield compare(pc.field(column.name), value)
