"""A batch of records to send, and its sequence numbers at the broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias
from uuid import UUID

from msgspec import Struct

from kohort.client.producer._deliveries import Fate
from kohort.errors import KohortError
from kohort.types import TopicPartition
from kohort.wire.codec.limits import Limits
from kohort.wire.codec.schema import Buffer
from kohort.wire.records import Compression, Record, RecordBatchBuilder, decode_records

NewRecord: TypeAlias = tuple[
    str, object, object, Sequence[tuple[str, Buffer | None]] | None, int | None, int | None
]
"""Topic, value, key, headers, partition and timestamp of a record: the arguments of `send`."""


class Identity(Struct, frozen=True):
    """The identity of an idempotent producer.

    Attributes:
        producer_id: Assigned by the broker.
        epoch: Assigned by the broker.
    """

    producer_id: int
    epoch: int


class Numbering(Struct, frozen=True):
    """The sequence numbers of a batch in a partition; all fields are -1 for none.

    Attributes:
        producer_id: Id of the producer.
        epoch: The producer's epoch in this partition.
        sequence: Sequence number of the batch's first record.
    """

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


UNNUMBERED = Numbering()

# Records from our own batches may always be read back, whatever the limits for brokers are.
_OUR_OWN = Limits(
    max_headers_per_record=0x7FFFFFFF,
    max_records_per_batch=0x7FFFFFFF,
    max_decompressed_bytes=0x7FFFFFFF,
    decompressed_bytes_always_allowed=0x7FFFFFFF,
)


class Content(Protocol):
    """The records of a batch."""

    @property
    def count(self) -> int:
        """Number of records."""

    @property
    def size(self) -> int:
        """Approximate size in bytes, uncompressed."""

    def build(
        self,
        codec: Compression,
        *,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        is_transactional: bool,
    ) -> Buffer:
        """Return the bytes to send."""


class Batch:
    """Records of one partition that are sent together.

    Args:
        partition: The partition to write to.
        created: When the first record was added.
        builder: The records; none by default.
        fate: Receives the outcome; by default that of records added one by one.

    Attributes:
        number: Place among the partition's batches.
        fate: Receives the outcome.
        reserved: Bytes of `buffer_memory` that it takes.
        is_done: Whether its outcome is known.
        numbering: Its sequence numbers; None until it is first taken.
        topic_id: Id of the topic it was last sent to (KIP-516); None when not known.
        not_before: When it may be taken (again).
        attempts: How many times it was taken.
        trouble: Why the last attempt to write it failed.
    """

    __slots__ = (
        "attempts",
        "builder",
        "created",
        "fate",
        "is_done",
        "not_before",
        "number",
        "numbering",
        "partition",
        "reserved",
        "topic_id",
        "trouble",
    )

    def __init__(
        self,
        partition: TopicPartition,
        created: int,
        builder: Content | None = None,
        fate: Fate | None = None,
    ) -> None:
        self.partition = partition
        self.number = -1
        self.created = created
        self.builder: Content = RecordBatchBuilder() if builder is None else builder
        self.fate = Fate(*partition) if fate is None else fate
        self.reserved = 0
        self.is_done = False
        self.numbering: Numbering | None = None
        self.topic_id: UUID | None = None
        self.not_before = 0
        self.attempts = 0
        self.trouble: KohortError | None = None

    def encode(self, codec: Compression, *, is_transactional: bool = False) -> Buffer:
        """Return the bytes to send.

        Args:
            codec: How to compress the records.
            is_transactional: Whether they belong to a transaction.
        """
        numbering = self.numbering or UNNUMBERED
        return self.builder.build(
            codec,
            producer_id=numbering.producer_id,
            producer_epoch=numbering.epoch,
            base_sequence=numbering.sequence,
            is_transactional=is_transactional,
        )

    def parts(self, most_bytes: int) -> list[Batch]:
        """Return the same records in several batches; a batch of one record cannot be split.

        Each part has at most half of the records, so repeated splitting always ends.

        Args:
            most_bytes: Maximum size of a part, before compression; a single record may exceed it.
        """
        most_records = (self.builder.count + 1) // 2
        builders: list[RecordBatchBuilder] = []
        for record in decode_records(self.encode(Compression.NONE), limits=_OUR_OWN):
            size = _payload_size(record)
            builder = builders[-1] if builders else None
            if builder is None or builder.count == most_records or builder.size + size > most_bytes:
                builder = RecordBatchBuilder()
                builders.append(builder)
            builder.append(record.timestamp, record.key, record.value, record.headers)
        fates = self.fate.cut([each.count for each in builders])
        return [
            Batch(self.partition, self.created, builder, fate)
            for builder, fate in zip(builders, fates, strict=True)
        ]


def _payload_size(record: Record) -> int:
    """Return the size of a record's key, value and headers, in bytes."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
