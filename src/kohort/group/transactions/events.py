"""Events and effects of a transaction coordinator."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.group.machine import Deadlines
from kohort.group.transactions.transaction import Transaction, TransactionRecord
from kohort.types import TopicPartition
from kohort.wire.records.marker import Marker


class Producer(Struct, frozen=True):
    """The id and epoch of a producer."""

    producer_id: int
    epoch: int


class InitProducer(Struct, frozen=True, kw_only=True):
    """A producer starts, or restarts after an error (InitProducerId).

    Attributes:
        transactional_id: Its name.
        timeout_ms: How long its transactions may take.
        expected: Its current id and epoch, None for a new one (KIP-360).
        fresh_id: An id that no producer has ever had; see `TransactionCoordinator.needs_id`.
    """

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None
    fresh_id: int = -1


class AddPartitions(Struct, frozen=True, kw_only=True):
    """Partitions join the transaction; the first ones begin it.

    Attributes:
        transactional_id: Name of the producer.
        producer: The id and epoch that it believes it has.
        partitions: The partitions it is about to write to.
        client_version: Version of the transaction protocol that it speaks.
    """

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    client_version: int = 0


class VerifyPartition(Struct, frozen=True, kw_only=True):
    """A producer writes to a partition that must be in its transaction (KIP-890)."""

    transactional_id: str
    producer: Producer
    partition: TopicPartition


class EndTransaction(Struct, frozen=True, kw_only=True):
    """A producer ends its transaction (EndTxn before version 5)."""

    transactional_id: str
    producer: Producer
    commits: bool


class EndAndRenew(Struct, frozen=True, kw_only=True):
    """A producer ends its transaction, and continues with the next epoch (EndTxn 5, KIP-890).

    Attributes:
        transactional_id: Name of the producer.
        producer: The id and epoch that it believes it has.
        commits: Whether it commits.
        fresh_id: An id that no producer has ever had; see `TransactionCoordinator.needs_id`.
    """

    transactional_id: str
    producer: Producer
    commits: bool
    fresh_id: int = -1


class MarkersWritten(Struct, frozen=True):
    """The markers were written to every partition of the transaction."""

    transactional_id: str


class TransactionTimedOut(NamedTuple):
    """A transaction timed out. Both the deadline and the event."""

    transactional_id: str
    kind: str = "timeout"


class ProducerExpired(NamedTuple):
    """A producer was silent for days. Both the deadline and the event."""

    transactional_id: str
    kind: str = "expired"


TransactionDeadline: TypeAlias = TransactionTimedOut | ProducerExpired
TransactionEvent: TypeAlias = (
    InitProducer | AddPartitions | VerifyPartition | EndTransaction | EndAndRenew | MarkersWritten
)


class Markers(Struct, frozen=True):
    """The markers to write to the partitions of a transaction; `MarkersWritten` follows."""

    transactional_id: str
    marker: Marker
    partitions: frozenset[TopicPartition]


class TransactionEffects(Struct, frozen=True, kw_only=True):
    """The effects of one event; none of them happens before the record is in the log.

    Attributes:
        transaction: The producer after this event.
        deadlines: The deadlines to install.
        record: The record to append; None: nothing has changed.
        error: The error code of the answer.
        producer: The producer's new id and epoch, if it requested them.
        markers: The markers to write.
    """

    transaction: Transaction
    deadlines: Deadlines[TransactionDeadline]
    record: TransactionRecord | None = None
    error: ErrorCode = ErrorCode.NONE
    producer: Producer | None = None
    markers: Markers | None = None


class TransactionConfig(Struct, frozen=True, kw_only=True):
    """Settings, by Kafka's names.

    Attributes:
        transaction_max_timeout_ms: Longest time that a transaction may take.
        transactional_id_expiration_ms: How long a producer may be silent before it is forgotten.
    """

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000
