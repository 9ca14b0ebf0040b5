"""The owners of partitions over time.

A timeline records facts in the order they were observed: a partition has an owner from now on, or
has none. It never guesses: gaps between observations are not filled.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kohort.types import TopicPartition


class Span(Struct, frozen=True):
    """A period in which one partition had one owner, or none.

    Attributes:
        partition: The partition.
        owner: Label of the member that owned it; None if it had no owner.
        start_ms: Start, in milliseconds of the observer's clock.
        end_ms: End, exclusive.
    """

    partition: TopicPartition
    owner: str | None
    start_ms: int
    end_ms: int

    @property
    def duration_ms(self) -> int:
        """Length in milliseconds."""
        return self.end_ms - self.start_ms


class OwnershipTimeline:
    """The owners of a fixed set of partitions over time."""

    def __init__(self, partitions: Iterable[TopicPartition], start_ms: int) -> None:
        """Start without any owner.

        Args:
            partitions: The partitions to follow; facts about others are ignored.
            start_ms: The start time in milliseconds; no fact may be older.
        """
        self.start_ms = start_ms
        self.partitions = tuple(sorted(partitions))
        self._changes: dict[TopicPartition, list[tuple[int, str | None]]] = {
            partition: [(start_ms, None)] for partition in self.partitions
        }

    def own(self, partition: TopicPartition, owner: str | None, now_ms: int) -> None:
        """Record that `owner` owns the partition from now on; None if no member does."""
        changes = self._changes.get(partition)
        if changes is None or changes[-1][1] == owner:
            return
        if changes[-1][0] >= now_ms:
            changes.pop()
        if not changes or changes[-1][1] != owner:
            changes.append((max(now_ms, self.start_ms), owner))

    def release_all(self, owner: str, now_ms: int) -> tuple[TopicPartition, ...]:
        """Record that `owner` no longer owns any partition; return its partitions."""
        held = tuple(p for p in self.partitions if self._changes[p][-1][1] == owner)
        for partition in held:
            self.own(partition, None, now_ms)
        return held

    def owners(self) -> dict[TopicPartition, str | None]:
        """Return the current owner of each partition."""
        return {partition: changes[-1][1] for partition, changes in self._changes.items()}

    def owner_at(self, partition: TopicPartition, at_ms: int) -> str | None:
        """Return the owner of a partition at a time."""
        owner = None
        for start, name in self._changes[partition]:
            if start > at_ms:
                break
            owner = name
        return owner

    def spans(self, partition: TopicPartition, until_ms: int) -> list[Span]:
        """Return the spans of one partition from the start until `until_ms`."""
        changes = self._changes[partition]
        ends = [start for start, _ in changes[1:]] + [max(until_ms, changes[-1][0])]
        return [
            Span(partition, owner, start, end)
            for (start, owner), end in zip(changes, ends, strict=True)
            if end > start
        ]

    def longest_gap_ms(
        self, start_ms: int, end_ms: int, among: Iterable[TopicPartition] | None = None
    ) -> int:
        """Return the longest time within [start, end] that any partition had no owner.

        Args:
            start_ms: Start.
            end_ms: End.
            among: Partitions to consider; all by default.
        """
        gaps = (
            min(span.end_ms, end_ms) - max(span.start_ms, start_ms)
            for partition in (self.partitions if among is None else among)
            for span in self.spans(partition, end_ms)
            if span.owner is None
        )
        return max((gap for gap in gaps if gap > 0), default=0)
