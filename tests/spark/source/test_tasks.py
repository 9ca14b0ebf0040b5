"""Ranges become tasks: every offset in one of them, few tasks for few records."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.spark.checkpoint.manifest import Range
from kohort.spark.source.tasks import FULL_TASK, SMALL_TASK, TaskLimits, plan
from kohort.types import TopicPartition

SIZES = st.one_of(
    st.integers(0, 50),
    st.integers(SMALL_TASK - 2, SMALL_TASK + 2),
    st.integers(0, 5 * FULL_TASK),
    st.integers(10**9, 10**15),
)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 30))
RANGES = st.dictionaries(
    PARTITIONS, st.builds(lambda start, size: (start, start + size), st.integers(0, 10**15), SIZES)
)
LIMITS = st.builds(
    lambda min_tasks, cores: TaskLimits(min_tasks=min_tasks, cores=cores),
    st.none() | st.integers(1, 100),
    st.integers(1, 64),
)


def ranges_of(*sizes: int, start: int = 0) -> dict[TopicPartition, Range]:
    return {TopicPartition("t", number): (start, start + n) for number, n in enumerate(sizes)}


def sizes_of(ranges: dict[TopicPartition, Range], limits: TaskLimits) -> list[int]:
    return [sum(piece.size for piece in task) for task in plan(ranges, limits)]


def check_exactly_once(ranges: dict[TopicPartition, Range], limits: TaskLimits) -> None:
    pieces = sorted(piece for task in plan(ranges, limits) for piece in task)
    for partition, (start, end) in ranges.items():
        mine = [(piece.start, piece.end) for piece in pieces if piece.partition == partition]
        assert all(first < last for first, last in mine)
        assert all(one[1] == other[0] for one, other in pairwise(mine))
        assert (mine[0][0], mine[-1][1]) == (start, end) if mine else start == end
    assert {piece.partition for piece in pieces} <= ranges.keys()


@given(RANGES, LIMITS)
def test_every_offset_is_in_exactly_one_task(
    ranges: dict[TopicPartition, Range], limits: TaskLimits
) -> None:
    check_exactly_once(ranges, limits)


@given(
    st.dictionaries(PARTITIONS, st.builds(lambda n: (7, 7 + n), st.integers(0, 500))),
    st.integers(1, 100),
    st.none() | st.integers(1, 50),
    st.integers(1, 64),
)
def test_no_task_has_more_than_the_most(
    ranges: dict[TopicPartition, Range], most: int, least: int | None, cores: int
) -> None:
    limits = TaskLimits(min_tasks=least, max_records=most, cores=cores)
    check_exactly_once(ranges, limits)
    assert all(size <= most for size in sizes_of(ranges, limits))


@given(RANGES, st.integers(1, 64))
def test_a_partition_is_split_only_when_asked(
    ranges: dict[TopicPartition, Range], cores: int
) -> None:
    tasks = plan(ranges, TaskLimits(cores=cores))
    assert max(Counter(piece.partition for task in tasks for piece in task).values(), default=1) < 2
    assert all(task == tuple(sorted(task)) and task for task in tasks)
    assert tasks == sorted(tasks)


@given(RANGES, LIMITS)
def test_there_are_as_many_tasks_as_wanted_if_there_are_ranges(
    ranges: dict[TopicPartition, Range], limits: TaskLimits
) -> None:
    filled = sum(start < end for start, end in ranges.values())
    assert len(plan(ranges, limits)) >= min(limits.min_tasks or 1, filled)


def test_few_records_are_one_task() -> None:
    assert sizes_of(ranges_of(*[1] * 40, *[0] * 160), TaskLimits(cores=8)) == [40]


def test_every_core_has_something_to_do_when_there_is_enough() -> None:
    assert sizes_of(ranges_of(*[400] * 10), TaskLimits(cores=2)) == [2000, 2000]
    assert sizes_of(ranges_of(*[100] * 10), TaskLimits(cores=8)) == [1000]


def test_many_records_are_a_task_for_each_partition() -> None:
    assert sizes_of(ranges_of(*[FULL_TASK] * 20), TaskLimits(cores=2)) == [FULL_TASK] * 20


def test_tasks_are_of_about_one_size() -> None:
    sizes = sizes_of(ranges_of(9000, *[100] * 90), TaskLimits(cores=2))
    assert sorted(sizes) == [9000, 9000]


@pytest.mark.parametrize(
    ("size", "least", "expected"),
    [
        (4, 4, [(1, 2), (2, 3), (3, 4), (4, 5)]),
        (10, 3, [(1, 4), (4, 7), (7, 11)]),
        (11, 3, [(1, 4), (4, 8), (8, 12)]),
        (2, 5, [(1, 2), (2, 3)]),
    ],
)
def test_a_hot_partition_is_split_as_spark_does(
    size: int, least: int, expected: list[Range]
) -> None:
    tasks = plan(ranges_of(size, start=1), TaskLimits(min_tasks=least, cores=1))
    assert [(piece.start, piece.end) for (piece,) in tasks] == expected


def test_small_partitions_stay_whole_when_a_large_one_is_split() -> None:
    """Spark's own rule: what stays whole counts first, the large ones share the rest."""
    ranges = ranges_of(10, 10, 1000)
    tasks = plan(ranges, TaskLimits(min_tasks=6, cores=1))
    assert [piece.size for (piece,) in tasks] == [10, 10, 250, 250, 250, 250]


def test_the_most_is_spread_evenly_as_spark_does() -> None:
    tasks = plan(ranges_of(25), TaskLimits(max_records=10, cores=1))
    assert sorted(sum(piece.size for piece in task) for task in tasks) == [8, 8, 9]
