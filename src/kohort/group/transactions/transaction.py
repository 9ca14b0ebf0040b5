"""A transactional producer as stored in the log, and its record."""

from __future__ import annotations

from collections.abc import Iterable

from immutables import Map
from msgspec import Struct

from kohort.errors import RemoteProtocolError
from kohort.group.machine import State
from kohort.types import TopicPartition
from kohort.wire.messages.transaction_records import (
    TransactionKey,
    TransactionPartitions,
    TransactionValue,
)

NO_EPOCH = -1
MAX_EPOCH = 0x7FFF
"""The last epoch only fences the holder of the previous one; no producer gets it."""


class TransactionState(State):
    """The state of a producer's transaction; values as Kafka's tools print them."""

    DEAD = "Dead"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_NUMBERS = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
}
_STATES = {number: state for state, number in _NUMBERS.items()}


class Transaction(Struct, frozen=True, kw_only=True):
    """A transactional producer; a value.

    Attributes:
        transactional_id: Its name.
        state: The state of its transaction; DEAD for an unknown producer.
        producer_id: Its id.
        epoch: Its epoch; each new epoch fences the earlier ones.
        last_epoch: The epoch before the last InitProducerId, to recognize a retry of that
            request; not in the log.
        previous_producer_id: The id whose epochs were used up, -1 for none.
        next_producer_id: The id that replaces it when this transaction ends; -1: it keeps its id.
        timeout_ms: How long a transaction may take.
        partitions: The partitions that take part.
        start_ms: When the transaction began, in milliseconds since 1970; -1 before the first.
        updated_ms: When this was written, in milliseconds since 1970.
        client_version: Version of the transaction protocol of its client; in version 2, the epoch
            changes after each transaction (KIP-890).
    """

    transactional_id: str
    state: TransactionState = TransactionState.DEAD
    producer_id: int = -1
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = -1
    next_producer_id: int = -1
    timeout_ms: int = 0
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    updated_ms: int = -1
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Return whether its epochs are used up."""
        return self.epoch >= MAX_EPOCH - 1

    @property
    def is_ending(self) -> bool:
        """Return whether the outcome is decided, but not all markers are written."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class TransactionRecord(Struct, frozen=True):
    """One record of the log; a `value` of None deletes the producer."""

    key: TransactionKey
    value: TransactionValue | None


Transactions = Map[str, Transaction]


def record_of(transaction: Transaction) -> TransactionRecord:
    """Return a producer's record, or its tombstone if it is DEAD."""
    key = TransactionKey(transactional_id=transaction.transactional_id)
    if transaction.state is TransactionState.DEAD:
        return TransactionRecord(key, None)
    value = TransactionValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=_NUMBERS[transaction.state],
        transaction_partitions=_by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    return TransactionRecord(key, value)


def _by_topic(transaction: Transaction) -> tuple[TransactionPartitions, ...] | None:
    """Return the partitions, None if the state has none."""
    if transaction.state is TransactionState.EMPTY:
        return None
    return tuple(
        TransactionPartitions(topic=topic, partition_ids=numbers)
        for topic, numbers in by_topic(transaction.partitions)
    )


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, tuple[int, ...]]]:
    """Return each topic with the numbers of its partitions, in order."""
    numbers: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return [(topic, tuple(each)) for topic, each in numbers.items()]


def fold(known: Transactions, record: TransactionRecord) -> Transactions:
    """Return the producer after one more record. A tombstone for an unknown producer is legal.

    Raises:
        RemoteProtocolError: The record has an unknown transaction state.
    """
    name, value = record.key.transactional_id, record.value
    if value is None:
        return known.delete(name) if name in known else known
    state = _STATES.get(value.transaction_status)
    if state is None:
        raise RemoteProtocolError(f"transaction {name!r} in state {value.transaction_status}")
    transaction = Transaction(
        transactional_id=name,
        state=state,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in value.transaction_partitions or ()
            for number in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
    return known.set(name, transaction)
