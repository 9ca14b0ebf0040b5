"""Where a region starts to read a partition: found once, and kept in the region's log."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.client import AsyncConsumer

EARLIEST = "earliest"
LATEST = "latest"
COMMITTED = "committed"
_NAMED = (EARLIEST, LATEST, COMMITTED)
# Smaller numbers (times before 1973) are probably offsets: no topic is that old.
_EARLIEST_TIME_MS = 10**11
_DURATION = re.compile(r"-P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


class StartPosition(Struct, frozen=True):
    """A start position.

    Attributes:
        name: `earliest`, `latest`, `committed` (or earliest without a commit); empty for a time.
        timestamp_ms: The time, in milliseconds since 1970.
    """

    name: str
    timestamp_ms: int = 0

    @classmethod
    def parse(cls, given: str | int) -> StartPosition:
        """Parse a start position.

        Args:
            given: `earliest`, `latest`, `committed`, milliseconds since 1970, or a duration before
                now in ISO 8601 (`-PT6H`, `-P1D`).

        Raises:
            ValueError: It is none of these.
        """
        if isinstance(given, int) and not isinstance(given, bool):
            return cls("", _time(given))
        text = str(given)
        if text in _NAMED:
            return cls(text)
        found = _DURATION.fullmatch(text)
        if found is None or not any(found.groups()):
            raise ValueError(
                f"start must be earliest, latest, committed, milliseconds since 1970 or a duration "
                f"such as '-PT6H', not {given!r}"
            )
        days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
        ago = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return cls("", int(time.time() * 1000 - ago.total_seconds() * 1000))

    async def find(
        self, consumer: AsyncConsumer, partition: TopicPartition, *, is_added: bool = False
    ) -> int:
        """Return the offset of this position in a partition.

        Args:
            consumer: Requests the offsets.
            partition: The partition.
            is_added: Whether it was added since the region began. Then it starts at its beginning,
                regardless of the start position, because it did not exist when the region began.

        Raises:
            KafkaError: The brokers do not answer.
        """
        if is_added:
            return (await consumer.beginning_offsets([partition]))[partition]
        if self.name == COMMITTED:
            offset = (await consumer.committed(partition)).get(partition)
            if offset is not None:
                return offset.offset
        if self.name in (EARLIEST, COMMITTED):
            return (await consumer.beginning_offsets([partition]))[partition]
        if not self.name:
            found = (await consumer.offsets_for_times({partition: self.timestamp_ms}))[partition]
            if found is not None:
                return found.offset
        return (await consumer.end_offsets([partition]))[partition]


def _time(given: int) -> int:
    if given < _EARLIEST_TIME_MS:
        raise ValueError(
            f"start {given} is not a time in milliseconds since 1970; an offset cannot be the "
            "start of a region, which has many partitions: commit offsets to the group, and pass "
            "'committed'"
        )
    return given
