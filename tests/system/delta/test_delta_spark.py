"""Tables that Delta Lake for Spark has made, or reads.

Runs where KOHORT_DELTA_SPARK names a Python with Delta Lake for Spark (CONTRIBUTING.md).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kohort.delta.append import TableAppend
from kohort.delta.positions import DeltaAppendError
from kohort.delta.rules import FEATURES
from tests.delta.differential import is_refused_by_both
from tests.delta.random_tables import TableRows, drawn
from tests.system.delta.by_spark import TABLES, plain

pytestmark = pytest.mark.timeout(1800)  # 21 tables, on a busy machine

READ = range(15)
SCRIPT = Path(__file__).with_name("by_spark.py")
# What the refusal says.
REFUSED = {
    "checkConstraints": r"the constraint positive: CHECK \(n > 0\)",
    "generatedColumns": "a generated column, m",
    "columnMapping": "column mapping",
    "NOT NULL in a structure": r"must not be null in one that may be, m\.a",
    **{
        name: f"the feature .*{name}"
        for name in (
            *("identityColumns", "allowColumnDefaults", "rowTracking", "typeWidening"),
            *("inCommitTimestamp", "icebergCompatV1", "icebergCompatV2", "vacuumProtocolCheck"),
            "clustering",
        )
    },
}


@pytest.fixture(scope="module")
def delta_spark() -> str:
    """The Python that has it."""
    return os.environ["KOHORT_DELTA_SPARK"]


def append(table: Path) -> None:
    made = pa.table(
        {
            "topic": ["t"],
            "partition": pa.array([0], pa.int32()),
            "offset": [0],
            "n": [1],
        }
    )
    TableAppend(table, "g").append(TableRows([made]), made.schema, 0)


@pytest.fixture(scope="module")
def folder(delta_spark: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables as Spark has made them."""
    made = tmp_path_factory.mktemp("tables")
    by_spark(delta_spark, "make", made)
    return made


def by_spark(delta_spark: str, what: str, folder: Path) -> str:
    """Run the script with Delta Lake for Spark, and return what it prints."""
    command = [delta_spark, str(SCRIPT), what, str(folder)]
    environment = {**os.environ, "TZ": "UTC"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-8000:]
    return done.stdout


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_whose_rule_is_not_kept_is_refused_by_name(folder: Path, name: str) -> None:
    before = sorted((folder / name).rglob("*"))
    with pytest.raises(DeltaAppendError, match=REFUSED[name]):
        append(folder / name)
    assert sorted((folder / name).rglob("*")) == before


def test_each_known_feature_is_one_of_a_table_that_spark_has_made(folder: Path) -> None:
    """`invariants` come with every table of features, and cannot be made with SQL."""
    found: set[str] = set()
    for name in TABLES:
        protocol = DeltaTable(folder / name).protocol()
        found.update(protocol.writer_features or ())
    assert FEATURES.keys() <= found | {"changeDataFeed", "checkConstraints", "generatedColumns"}


def test_it_finds_in_a_table_what_it_finds_in_one_that_deltalake_has_written(
    delta_spark: str, tmp_path: Path
) -> None:
    """Random tables: the same rows, or the same refusal; and every filter finds all of its rows."""
    written = {seed: table for seed in READ if (table := write_both(seed, tmp_path)) is not None}
    lines = by_spark(delta_spark, "read", tmp_path).splitlines()
    seen = {each.pop("table"): each for each in map(json.loads, lines)}
    refused = 0
    for seed, table in written.items():
        ours, theirs = seen[f"ours-{seed}"], seen[f"theirs-{seed}"]
        if "refused" in theirs:
            assert ours == theirs, seed
            refused += 1
        else:
            rows = table.to_pylist(maps_as_pydicts="strict")
            wanted = [{name: repr(plain(value)) for name, value in row.items()} for row in rows]
            assert ours == {"rows": wanted, "missed": []}, seed
    assert refused < len(written) / 2


def write_both(seed: int, folder: Path) -> pa.Table | None:
    """Write a random table as we do and as deltalake does; None if neither can."""
    if is_refused_by_both(seed, folder / "refused"):
        return None
    table = drawn(seed, Counter())
    half = len(table) // 2
    parts = TableRows([table[:half], table[half:]])
    TableAppend(folder / f"ours-{seed}", "g").append(parts, table.schema, 0)
    write_deltalake(folder / f"theirs-{seed}", table)
    return table
