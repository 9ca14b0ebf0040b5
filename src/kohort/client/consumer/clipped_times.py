"""Tells of timestamps that columns of microseconds cannot hold."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.wire.records.arrow import Clipped

log = logging.getLogger("kohort.client")


class ClippedTimes:
    """Logs once for each partition that timestamps in its columns are not those of its records."""

    def __init__(self) -> None:
        self._told: set[tuple[str, int]] = set()

    def note(self, clipped: Iterable[Clipped]) -> None:
        """Log what has not been logged yet."""
        for topic, partition, offset, _ in clipped:
            if (topic, partition) in self._told:
                continue
            self._told.add((topic, partition))
            log.warning(
                "%s-%d: timestamps, the first at offset %d, are beyond what columns of microseconds"
                " can hold; the nearest one that fits stands in their place. A consumer's poll()"
                " gives them as they are; perhaps their producer does not count milliseconds. This"
                " is not logged again for this partition",
                topic,
                partition,
                offset,
            )
