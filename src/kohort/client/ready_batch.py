"""A batch of records that were encoded before it was added; only its header is still open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kohort.client.accumulator import UNNUMBERED, Batch
from kohort.client.delivery import Delivery
from kohort.errors import KafkaError, KohortError
from kohort.types import TopicPartition
from kohort.wire.records import Compression
from kohort.wire.schema import Buffer

_MOST_NAMED = 3


class Encoded(Protocol):
    """Encoded records."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def size(self) -> int:
        """Bytes of them."""

    def build(
        self, *, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1
    ) -> Buffer:
        """Return the whole batch with these numbers."""


class Fate(Protocol):
    """Told once what became of a batch."""

    def delivered(self, base_offset: int) -> None:
        """Take where its first record went, -1 when that is not known."""

    def failed(self, error: KohortError) -> None:
        """Take why it did not go anywhere."""


class ReadyBatch(Batch[Delivery]):
    """Encoded records of one partition, and who is told of them as a whole.

    Args:
        partition: Where they go.
        created: Milliseconds of the loop's clock.
        encoded: The records.
        fate: Told what became of them.
        reserved: Bytes of memory they count for.
    """

    __slots__ = ("encoded", "fate")

    def __init__(
        self, partition: TopicPartition, created: int, encoded: Encoded, fate: Fate, reserved: int
    ) -> None:
        super().__init__(partition, created)
        self.encoded = encoded
        self.fate = fate
        self.reserved = reserved

    @property
    def count(self) -> int:
        """How many records there are."""
        return self.encoded.count

    @property
    def size(self) -> int:
        """Bytes of them."""
        return self.encoded.size

    def encode(self, codec: Compression) -> Buffer:  # noqa: ARG002  # compressed long ago
        """Return the bytes to send."""
        numbering = self.numbering or UNNUMBERED
        return self.encoded.build(
            producer_id=numbering.producer_id,
            producer_epoch=numbering.epoch,
            base_sequence=numbering.sequence,
        )

    def refused(self, code: int, where: str, reasons: Mapping[int, str | None]) -> None:
        """Fail because the broker does not take some of the records (KIP-467)."""
        named = [
            f"record {index} of the batch: {reason or 'it is refused'}"
            for index, reason in list(reasons.items())[:_MOST_NAMED]
        ]
        if len(reasons) > _MOST_NAMED:
            named.append(f"and {len(reasons) - _MOST_NAMED} more")
        self.fate.failed(KafkaError(code, f"{where}: {'; '.join(named)}"))
