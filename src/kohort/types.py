"""Values shared by all layers."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class TopicPartition(NamedTuple):
    """One partition of one topic; unpacks like a tuple, sorts by topic, then partition.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
    """

    topic: str
    partition: int


class ConsumerGroupMetadata(Struct, frozen=True):
    """A consumer's identity in its group, for a producer that commits on its behalf (KIP-447).

    Attributes:
        group_id: The group.
        generation_id: Generation, or member epoch (KIP-848); -1: not a member.
        member_id: Id of the member; empty: none.
        group_instance_id: Id of a static member, or None.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndMetadata(Struct, frozen=True):
    """A committed position.

    Attributes:
        offset: Offset of the next record to read.
        metadata: Free text stored with the offset (the broker's limit is 4096 bytes).
        leader_epoch: Leader epoch of the last record read; -1: unknown (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
