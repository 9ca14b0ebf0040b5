"""Tables that Delta Lake for Spark has made: those whose rules are not kept are refused by name.

Runs where KOHORT_DELTA_SPARK names a Python with Delta Lake for Spark (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kohort.delta.append import TableAppend
from kohort.delta.positions import DeltaAppendError
from kohort.delta.rules import FEATURES
from tests.delta.random_tables import TableRows
from tests.system.delta.by_spark import TABLES

pytestmark = pytest.mark.timeout(1800)  # 21 tables, on a busy machine

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
    command = [delta_spark, str(SCRIPT), str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-8000:]
    return made


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
