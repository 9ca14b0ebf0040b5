"""Report timestamps that do not fit in microsecond columns."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.wire.records.arrow import Clipped

log = logging.getLogger("kohort.client")


class ClippedTimes:
    """Logs once per partition that timestamps in its columns differ from those of its records."""

    def __init__(self) -> None:
        self._told: set[tuple[str, int]] = set()

    def note(self, clipped: Iterable[Clipped]) -> None:
        """Log partitions that have not been logged yet."""
        for topic, partition, offset, _ in clipped:
            if (topic, partition) in self._told:
                continue
            self._told.add((topic, partition))
            log.warning(
                "%s-%d: timestamps, the first at offset %d, are beyond what columns of microseconds"
                " can hold; the nearest possible value replaces them. A consumer's poll()"
                " returns them unchanged; their producer may not use milliseconds. This"
                " is not logged again for this partition",
                topic,
                partition,
                offset,
            )
