"""Records of the `__transaction_state` topic: the state of a transaction coordinator (KIP-98)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Tag,
    message,
    since,
)


@message(versions=(0, 0))
class TransactionKey(Message, frozen=True, kw_only=True):
    """Identifies a producer by its transactional id."""

    transactional_id: String


class TransactionPartitions(Struct, frozen=True, kw_only=True):
    """Partitions of one topic in the transaction."""

    topic: String
    partition_ids: tuple[Int32, ...]


@message(versions=(0, 1), flexible_since=1)
class TransactionValue(Message, frozen=True, kw_only=True):
    """A transactional producer, and the state of its transaction."""

    producer_id: Int64
    previous_producer_id: Annotated[Int64, since(1), Tag(0), IGNORABLE] = -1
    next_producer_id: Annotated[Int64, since(1), Tag(1), IGNORABLE] = -1
    producer_epoch: Int16
    next_producer_epoch: Annotated[Int16, since(1), Tag(3), IGNORABLE] = -1
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: tuple[TransactionPartitions, ...] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Annotated[Int16, since(1), Tag(2), IGNORABLE] = 0
