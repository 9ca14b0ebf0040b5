"""Judge a finished demo only by the table it wrote and the data set it replayed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kohort.demo.flights import CarrierFigures, figures_of
from kohort.errors import KohortError

if TYPE_CHECKING:
    import pyarrow as pa

# Below this share of the flights, an application did not really take part.
SMALLEST_SHARE = 0.10
# With fewer snapshots, a reader has not observed the acts.
FEWEST_SNAPSHOTS = 5


class TableFacts(Struct, frozen=True):
    """The contents of the table.

    Attributes:
        rows: Number of rows.
        distinct: Number of distinct flights among them.
        figures: Flights and delays of each carrier.
        read_by: Number of rows written by each application.
    """

    rows: int
    distinct: int
    figures: Mapping[str, CarrierFigures]
    read_by: Mapping[str, int]


class SnapshotFacts(Struct, frozen=True):
    """A reader's observations of the table while the region's applications wrote it.

    Attributes:
        snapshots: Number of checked snapshots, each a version of the table.
        last: Number of flights in the last snapshot.
        wrong: Why a snapshot was not a consistent cut; empty if all were.
        checkpoints: Checkpoints that the region has completed.
        resets: How many times it went back to the last one.
    """

    snapshots: int
    last: int
    wrong: str
    checkpoints: int
    resets: int


class Verdict(Struct, frozen=True):
    """The outcome.

    Attributes:
        lost: Flights of the data set that are missing from the table.
        twice: Rows of the table that repeat a flight.
        reasons: The faults, in sentences; empty if there are none.
    """

    lost: int
    twice: int
    reasons: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether there are no faults."""
        return not self.reasons


def read_table(path: Path) -> TableFacts:
    """Read the facts with deltalake and pyarrow, without Spark."""
    from deltalake import DeltaTable

    columns = ["id", "carrier", "dep_delay", "application"]
    return facts_of(DeltaTable(path).to_pyarrow_table(columns=columns))


def facts_of(table: pa.Table) -> TableFacts:
    """Return the facts of a table with columns id, carrier, dep_delay and application."""
    import pyarrow.compute as pc

    counts = table.group_by("application").aggregate([("application", "count")]).to_pylist()
    return TableFacts(
        rows=table.num_rows,
        distinct=pc.count_distinct(table.column("id")).as_py(),
        figures=figures_of(table),
        read_by={row["application"]: row["application_count"] for row in counts},
    )


def judge(
    expected: Mapping[str, CarrierFigures],
    facts: TableFacts,
    applications: tuple[str, ...],
    moved_under_load: int,
) -> Verdict:
    """Compare the table with the data set.

    Args:
        expected: Figures computed from the data set itself.
        facts: The contents of the table.
        applications: Every application that had to take part.
        moved_under_load: How many partitions changed owners while records were flowing.
    """
    total = sum(figures.flights for figures in expected.values())
    lost, twice = total - facts.distinct, facts.rows - facts.distinct
    reasons = []
    if lost:
        reasons.append(f"{lost:,} flights are not in the table")
    if twice:
        reasons.append(f"{twice:,} rows repeat a flight")
    reasons.extend(_wrong_carriers(expected, facts.figures))
    for name in applications:
        share = facts.read_by.get(name, 0) / total if total else 0.0
        if share < SMALLEST_SHARE:
            reasons.append(f"{name} read {share:.1%} of the flights, below {SMALLEST_SHARE:.0%}")
    if not moved_under_load:
        reasons.append("no partition moved while records were flowing")
    return Verdict(lost=lost, twice=twice, reasons=tuple(reasons))


def judge_snapshots(seen: SnapshotFacts, rows: int) -> tuple[str, ...]:
    """Return the faults seen by a reader in the table while it was written.

    Args:
        seen: Its observations.
        rows: Rows of the table at the end.
    """
    if seen.wrong:
        return (f"a reader saw no consistent cut: {seen.wrong}",)
    if seen.last != rows:
        return (f"the reader saw {seen.last:,} flights at the end, the table has {rows:,}",)
    if seen.snapshots < FEWEST_SNAPSHOTS:
        return (f"the reader saw {seen.snapshots} snapshots, fewer than {FEWEST_SNAPSHOTS}",)
    return ()


def _wrong_carriers(
    expected: Mapping[str, CarrierFigures], found: Mapping[str, CarrierFigures]
) -> list[str]:
    names = sorted({*expected, *found})
    wrong = [name for name in names if expected.get(name) != found.get(name)]
    return [f"figures differ for carriers {', '.join(wrong)}"] if wrong else []


def read_table_with_spark(path: Path) -> TableFacts:
    """Read the facts with Spark SQL, in a separate process.

    Raises:
        KohortError: Spark failed; the message is the end of its output.
    """
    command = [sys.executable, "-m", "kohort.demo.spark_verdict", "--table", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KohortError(f"Spark SQL could not read the table: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return TableFacts(
        rows=found["rows"],
        distinct=found["distinct"],
        figures={name: CarrierFigures(*values) for name, values in found["figures"].items()},
        read_by=found["read_by"],
    )
