"""Values that every layer shares."""

from __future__ import annotations

from typing import NamedTuple

from kohort.values import dataclass


class TopicPartition(NamedTuple):
    """One partition of one topic; unpacks like a tuple, sorts by topic, then partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed position.

    Attributes:
        offset: Offset of the next record to read.
        metadata: Free text stored beside the offset (the broker's limit is 4096 bytes).
        leader_epoch: Leader epoch of the last record read, -1 when unknown (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
