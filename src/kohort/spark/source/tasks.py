"""Turns the ranges of a batch into Spark's tasks: groups small ones, splits large ones on request.

Each task costs Spark some milliseconds and each fetch a round trip, so ranges with few records
share a task. A partition's records stay in one task, in order, unless the options `minPartitions`
or `maxRecordsPerPartition` ask for a split, as in Spark's own source: two parts of one partition
run in parallel, so a sink such as Kafka receives their records out of order.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from kohort.spark.checkpoint.manifest import Range
from kohort.types import TopicPartition

# Minimum number of records for a separate task: at least a tenth of a millisecond of reading.
SMALL_TASK = 1_000
# Maximum number of records of a task before another one is opened although all cores have one:
# about fifty milliseconds of reading, so that Spark's overhead per task is negligible.
FULL_TASK = 50_000


class Piece(NamedTuple):
    """A part of a batch that one task reads.

    Attributes:
        partition: Topic and partition.
        start: First offset.
        end: Offset after the last.
    """

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start


class TaskLimits(Struct, frozen=True, kw_only=True):
    """Limits on the tasks of a batch.

    Attributes:
        min_tasks: The option `minPartitions`: roughly the minimum number of tasks; the largest
            ranges are split to reach it.
        max_records: The option `maxRecordsPerPartition`: no task has more.
        cores: Tasks that run at the same time.
    """

    min_tasks: int | None = None
    max_records: int | None = None
    cores: int = 1

    @staticmethod
    def of_this_machine(min_tasks: int | None, max_records: int | None) -> TaskLimits:
        """Return limits with this machine's cores: a source cannot read Spark's settings."""
        return TaskLimits(min_tasks=min_tasks, max_records=max_records, cores=os.cpu_count() or 1)


def plan(ranges: Mapping[TopicPartition, Range], limits: TaskLimits) -> list[tuple[Piece, ...]]:
    """Return the pieces that each task reads: every offset in exactly one task.

    Args:
        ranges: The ranges of the batch; empty ones are left out.
        limits: Limits on the tasks.

    Returns:
        The tasks, ordered by their first pieces; the pieces of a task, ordered by topic, partition
        and offset.
    """
    pieces = [Piece(each, *ranges[each]) for each in sorted(ranges)]
    pieces = [piece for piece in pieces if piece.size > 0]
    if limits.max_records is not None:
        pieces = _split_large(pieces, limits.max_records)
    if limits.min_tasks is not None and limits.min_tasks > len(pieces):
        pieces = _split_to(pieces, limits.min_tasks)
    count = _task_count(pieces, limits)
    if count >= len(pieces):
        return [(piece,) for piece in pieces]
    tasks = _pack(pieces, count, limits.max_records)
    return sorted(tuple(_joined(sorted(task))) for task in tasks)


def _task_count(pieces: Sequence[Piece], limits: TaskLimits) -> int:
    total = sum(piece.size for piece in pieces)
    side_by_side = min(limits.cores, -(-total // SMALL_TASK))
    return max(side_by_side, -(-total // FULL_TASK), limits.min_tasks or 1)


def _split_large(pieces: Iterable[Piece], most: int) -> list[Piece]:
    return [part for piece in pieces for part in _parts(piece, -(-piece.size // most))]


def _split_to(pieces: Sequence[Piece], wanted: int) -> list[Piece]:
    """Split the largest pieces in proportion to their sizes, as Spark's own source does.

    Pieces that stay whole are set aside first, so that the others share the remaining number.
    """
    total = sum(piece.size for piece in pieces)
    whole = {piece for piece in pieces if _share(piece, total, wanted) == 1}
    left = total - sum(piece.size for piece in whole)
    number = max(wanted - len(whole), 1)
    return [
        part
        for piece in pieces
        for part in _parts(piece, 1 if piece in whole else _share(piece, left, number))
    ]


def _share(piece: Piece, total: int, wanted: int) -> int:
    """Return the number of parts for a piece, halves rounded up."""
    return max(1, int(Fraction(piece.size * wanted, total) + Fraction(1, 2)))


def _parts(piece: Piece, count: int) -> list[Piece]:
    """Cut a piece into non-empty parts of about the same size."""
    cuts = [piece.start + piece.size * number // count for number in range(count + 1)]
    return [Piece(piece.partition, start, end) for start, end in pairwise(cuts) if start < end]


def _pack(pieces: Iterable[Piece], count: int, most: int | None) -> list[list[Piece]]:
    """Put pieces into tasks, the largest first, each into the smallest task."""
    tasks: list[list[Piece]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for piece in sorted(pieces, key=lambda each: (-each.size, each)):
        load, number = loads[0]
        if most is not None and load and load + piece.size > most:
            tasks.append([piece])
            heapq.heappush(loads, (piece.size, len(tasks) - 1))
        else:
            tasks[number].append(piece)
            heapq.heapreplace(loads, (load + piece.size, number))
    return [task for task in tasks if task]


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Merge adjacent pieces of a partition."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and joined[-1].partition == piece.partition and joined[-1].end == piece.start:
            joined[-1] = Piece(piece.partition, joined[-1].start, piece.end)
        else:
            joined.append(piece)
    return joined
