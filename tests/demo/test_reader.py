"""The reader of the demo's table: it must find whatever makes a snapshot no consistent cut."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from kohort.demo.reader import Truth, what_is_wrong
from kohort.demo.totals import TOTAL, columns, flight_fields, totals_of_batches, with_totals
from kohort.demo.verdict import SnapshotFacts, judge_snapshots
from kohort.region import KeyedState
from kohort.types import TopicPartition

FLIGHTS = pa.table(
    {
        "tailnum": ["N1", None, "N2", "N1", "N1", None],
        "dep_delay": pa.array([5, 7, None, -2, 3, 1], pa.int64()),
    }
)
Change = Callable[[list[tuple[int, int, int, int]]], object]


def truth() -> Truth:
    known = Truth(FLIGHTS)
    known.add(0, [0, 3])
    known.add(1, [2, 1, 5])
    known.add(0, [4])
    return known


def whole() -> list[tuple[int, int, int, int]]:
    """All rows: partition, offset, id, total."""
    return [(0, 0, 0, 5), (1, 0, 2, 0), (0, 1, 3, 3), (1, 1, 1, 7), (0, 2, 4, 6), (1, 2, 5, 8)]


def wrong_with(rows: list[tuple[int, int, int, int]]) -> str:
    made = np.array(rows, dtype=np.int64).reshape(-1, 4)
    names = ("partition", "offset", "id", TOTAL)
    return what_is_wrong({name: made[:, at] for at, name in enumerate(names)}, truth())


def test_every_prefix_of_each_partition_is_a_consistent_cut() -> None:
    first = [row for row in whole() if row[0] == 0]
    second = [row for row in whole() if row[0] == 1]
    for some in range(len(first) + 1):
        for others in range(len(second) + 1):
            assert wrong_with(second[:others] + first[:some]) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.remove((0, 1, 3, 3)), "partition 0: after 1 records offset 2 is the"),
        (lambda rows: rows.append((1, 0, 2, 0)), "partition 1: after 1 records offset 0 is there"),
        (lambda rows: rows.remove((0, 0, 0, 5)), "partition 0: after 0 records offset 1 is the"),
        (lambda rows: rows.append((1, 3, 0, 9)), "partition 1: its first 4 records are others"),
        (lambda rows: rows.__setitem__(3, (1, 1, 0, 7)), "partition 1: its first 3 records are"),
        (lambda rows: rows.__setitem__(4, (0, 2, 4, 9)), "partition 0, offset 2: total 9 inst"),
        (lambda rows: rows.append((7, 0, 2, 0)), "partition 7: its first 1 records are others"),
    ],
)
def test_whatever_is_no_cut_is_named(change: Change, said: str) -> None:
    rows = whole()
    change(rows)
    assert said in wrong_with(rows)


def test_totals_go_on_from_the_state_and_are_the_readers() -> None:
    rows = FLIGHTS.take([0, 3, 4])
    state = KeyedState()
    made = [with_totals(rows.slice(at, 1), state)[TOTAL].to_pylist() for at in range(3)]
    assert [total for each in made for total in each] == truth().prefix(0, 3)[1]
    batches = totals_of_batches(TopicPartition("t", 0), rows.to_batches(), KeyedState())
    assert [total for each in batches for total in each[TOTAL].to_pylist()] == [5, 3, 6]
    assert {*flight_fields().names} < {*columns().names}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (SnapshotFacts(20, 100, "version 7: x", 20, 1), "a reader saw no consistent cut: version"),
        (SnapshotFacts(20, 99, "", 20, 1), "the reader saw 99 flights at the end, the table has"),
        (SnapshotFacts(4, 100, "", 20, 1), "the reader saw 4 snapshots, fewer than 5"),
    ],
)
def test_what_the_reader_saw_can_fail_the_demo(facts: SnapshotFacts, said: str) -> None:
    (reason,) = judge_snapshots(facts, 100)
    assert said in reason
    assert judge_snapshots(SnapshotFacts(20, 100, "", 20, 1), 100) == ()
