"""The range that `kohort consume` reads: `-o` as in kcat, and the ends of partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from kohort.cli.reset_specs import parse_time
from kohort.cli.shared import wrong_usage
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client import Consumer, ConsumerRecord

_NUMBER: Final = re.compile(r"-?\d{1,19}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RESETS: Final[dict[str, Literal["earliest", "latest", "none"]]] = {
    "beginning": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
    "stored": "none",
}


class Limits(Struct, frozen=True):
    """The range to read.

    Attributes:
        reset: The end of the partitions to start at; "none" in a group: only committed offsets.
        offset: The offset to start at; if negative, counted back from the end.
        begin_ms: The time to start at.
        end_ms: The time to stop before.
    """

    reset: Literal["earliest", "latest", "none"] = "earliest"
    offset: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None


def parse_offsets(texts: Sequence[str], *, is_group: bool) -> Limits:
    """Return the limits that `-o` sets.

    Raises:
        typer.BadParameter: It is invalid, or invalid in a group.
    """
    ends = [text[2:] for text in texts if text.startswith("e@")]
    begins = [text for text in texts if not text.startswith("e@")]
    if len(ends) > 1 or len(begins) > 1:
        raise wrong_usage("-o: give at most one start, and one e@TIME as the end")
    end_ms = _milliseconds(ends[0]) if ends else None
    begin = begins[0] if begins else "beginning"
    if begin in _RESETS:
        if begin == "stored" and not is_group:
            raise wrong_usage("-o stored needs a --group")
        return Limits(_RESETS[begin], end_ms=end_ms)
    if is_group:
        raise wrong_usage(
            f"-o {begin}: a group starts at its committed offsets; kohort groups reset-offsets"
            " sets them"
        )
    if begin.startswith("s@"):
        return Limits(begin_ms=_milliseconds(begin[2:]), end_ms=end_ms)
    if not _NUMBER.fullmatch(begin) or not -(2**63) < int(begin) < 2**63:
        raise wrong_usage(f"-o {begin}: must be beginning, end, stored, N, -N, s@TIME or e@TIME")
    return Limits(offset=int(begin), end_ms=end_ms)


def _milliseconds(text: str) -> int:
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    try:
        return max(-((_EPOCH - parse_time(text)) // timedelta(milliseconds=1)), 0)
    except ValueError as error:
        raise wrong_usage(f"-o: {error}") from None


class Range:
    """Tracks the position and the end of each partition.

    Args:
        consumer: The consumer that reads.
        limits: The range to read.
        is_finite: Whether to stop at the end that a partition has when it is first seen.
    """

    def __init__(self, consumer: Consumer, limits: Limits, *, is_finite: bool) -> None:
        self._consumer = consumer
        self._limits = limits
        self._is_finite = is_finite
        self._ends: dict[TopicPartition, int] = {}
        self._over: set[TopicPartition] = set()

    def seek(self, partitions: Sequence[TopicPartition]) -> None:
        """Seek to the start of the range."""
        limits, consumer = self._limits, self._consumer
        begins = consumer.beginning_offsets(partitions)
        ends = consumer.end_offsets(partitions)
        if self._is_finite:
            self._ends.update(ends)
        places = begins if limits.reset == "earliest" else ends
        if limits.offset is not None and limits.offset >= 0:
            places = dict.fromkeys(partitions, limits.offset)
        elif limits.offset is not None:
            places = {at: max(ends[at] + limits.offset, begins[at]) for at in partitions}
        elif limits.begin_ms is not None:
            found = consumer.offsets_for_times(dict.fromkeys(partitions, limits.begin_ms))
            places = {
                at: record.offset if (record := found.get(at)) else ends[at] for at in partitions
            }
        for at, place in places.items():
            consumer.seek(at, place)

    def within(self, records: Iterable[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records of a partition up to its end; seek back before the others."""
        taken: list[ConsumerRecord] = []
        end_ms = self._limits.end_ms
        for record in records:
            at = TopicPartition(record.topic, record.partition)
            is_late = end_ms is not None and record.timestamp >= end_ms
            if is_late or record.offset >= self._ends.get(at, record.offset + 1):
                self._finish(at, record.offset)
                break
            taken.append(record)
        return taken

    def _finish(self, at: TopicPartition, next_offset: int) -> None:
        self._over.add(at)
        self._consumer.seek(at, next_offset)  # otherwise a commit would include the others
        self._consumer.pause(at)

    def is_over(self) -> bool:
        """Return whether every assigned partition has reached its end."""
        if not self._is_finite and self._limits.end_ms is None:
            return False
        assigned = self._consumer.assignment()
        self._over &= assigned
        if self._is_finite:
            new = [at for at in assigned if at not in self._ends]
            self._ends.update(self._consumer.end_offsets(new) if new else {})
            self._ends = {at: end for at, end in self._ends.items() if at in assigned}
            positions = self._consumer.positions()
            self._over |= {
                at for at in assigned if at in positions and positions[at] >= self._ends[at]
            }
        return bool(assigned) and self._over >= assigned
