"""Log state: the fold of the records of the group log.

Positions are the same for every kind of group, so they are folded here. Everything else in the log
belongs to one kind: each kind has a `Part` whose type only that kind knows. `state.LogState` has
all of them by name.
"""

from __future__ import annotations

import uuid
from typing import Generic, Protocol, TypeVar, cast

from immutables import Map
from msgspec import Struct

from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import ZERO_UUID
from kohort.wire.messages.group_records import (
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)

V = TypeVar("V")


class HasParts(Protocol):
    """Log state, or session state."""

    @property
    def parts(self) -> Map[str, object]:
        """Return the parts of the kinds, by name."""


H = TypeVar("H", bound=HasParts)


class Part(Generic[V]):
    """The part of one kind of group in the log state or in the session state; a typed key.

    Args:
        name: Its name, unique within the log state and within the session state.
        empty: The value before anything was stored.
    """

    def __init__(self, name: str, empty: V) -> None:
        self._name = name
        self._empty = empty

    def of(self, whole: HasParts) -> V:
        """Return the part."""
        return whole.parts.get(self._name, self._empty)  # type: ignore[return-value]  # the only writer is `put`

    def put(self, whole: H, value: V) -> H:
        """Return the state with a new value of the part; an empty value is not stored.

        So two states with the same content are equal, regardless of their history.
        """
        if value != self._empty:
            parts = whole.parts.set(self._name, value)
        elif self._name in whole.parts:
            parts = whole.parts.delete(self._name)
        else:
            return whole
        return replace(whole, parts=parts)  # type: ignore[type-var]  # states are structs, which a protocol cannot express


class GroupsPart(Part[Map[str, V]], Generic[V]):
    """A part with one entry for each group.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, Map())

    def with_entry(self, whole: H, group_id: str, value: V | None) -> H:
        """Return the state with a new entry of a group; None removes it."""
        known = self.of(whole)
        if value is not None:
            return self.put(whole, known.set(group_id, value))
        return self.put(whole, known.delete(group_id)) if group_id in known else whole


class StoredOffset(Struct, frozen=True):
    """A position in the log.

    Attributes:
        offset: Offset of the next record to read.
        leader_epoch: Leader epoch of the last record read, -1 when unknown.
        metadata: Its metadata text.
        commit_timestamp: When it was stored, in milliseconds since 1970.
        expire_timestamp: When it expires if an old client requested it (KIP-211), -1 for none.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1


Offsets = Map[TopicPartition, StoredOffset]
NO_OFFSETS: Offsets = Map()


class TransactionEnd(Struct, frozen=True):
    """A transaction marker in the log: the producer's positions are committed or aborted."""

    producer_id: int
    committed: bool


class PendingOffset(Struct, frozen=True):
    """A position in an open transaction (C54).

    Attributes:
        producer_id: Id of the transaction's producer.
        stored: The position; None: a later position replaces it, however the transaction ends.
    """

    producer_id: int
    stored: StoredOffset | None


PendingOffsets = Map[TopicPartition, tuple[PendingOffset, ...]]
NO_PENDING: PendingOffsets = Map()


class GroupLog(Struct, frozen=True):
    """The fold of the log; a value.

    Attributes:
        offsets: Positions of each group that has any.
        pending: Positions in transactions by group, per partition in the order of the log.
        parts: The part of each kind of group.
    """

    offsets: Map[str, Offsets] = Map()
    pending: Map[str, PendingOffsets] = Map()
    parts: Map[str, object] = Map()

    def offsets_of(self, group_id: str) -> Offsets:
        """Return the positions of a group, empty if it has none."""
        return self.offsets.get(group_id, NO_OFFSETS)

    def pending_of(self, group_id: str) -> PendingOffsets:
        """Return the positions of a group in open transactions."""
        return self.pending.get(group_id, NO_PENDING)

    def known_offsets_of(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions for which a group has a position, even in an open transaction."""
        return sorted({*self.offsets_of(group_id), *self.pending_of(group_id)})

    def has_offsets(self, group_id: str) -> bool:
        """Return whether a group has any position, even in an open transaction."""
        return group_id in self.offsets or group_id in self.pending


L = TypeVar("L", bound=GroupLog)


def fold_offset(log: L, record: GroupRecord) -> L:
    """Add the record of a position (C70). A tombstone for nothing is legal (B2)."""
    key, value = cast("OffsetCommitKey", record.key), record.value
    partition, stored = TopicPartition(key.topic, key.partition), None
    if isinstance(value, OffsetCommitValue):
        stored = _stored(value)
        if record.producer_id >= 0:
            return _with_pending(log, key.group, partition, record.producer_id, stored)
    if key.group in log.pending:
        log = _outdated(log, key.group, partition, gone=stored is None)
    return _with_offset(log, key.group, partition, stored)


def _with_offset(
    log: L, group_id: str, partition: TopicPartition, stored: StoredOffset | None
) -> L:
    offsets = log.offsets_of(group_id)
    if stored is not None:
        offsets = offsets.set(partition, stored)
    elif partition in offsets:
        offsets = offsets.delete(partition)
    else:
        return log
    if offsets:
        return replace(log, offsets=log.offsets.set(group_id, offsets))
    return replace(log, offsets=log.offsets.delete(group_id))


def _put_pending(
    log: L, group_id: str, partition: TopicPartition, pending: tuple[PendingOffset, ...]
) -> L:
    known = log.pending_of(group_id)
    if pending:
        known = known.set(partition, pending)
    elif partition in known:
        known = known.delete(partition)
    if known:
        return replace(log, pending=log.pending.set(group_id, known))
    return replace(log, pending=log.pending.delete(group_id)) if group_id in log.pending else log


def _with_pending(
    log: L, group_id: str, partition: TopicPartition, producer_id: int, stored: StoredOffset
) -> L:
    before = log.pending_of(group_id).get(partition, ())
    others = tuple(each for each in before if each.producer_id != producer_id)
    return _put_pending(log, group_id, partition, (*others, PendingOffset(producer_id, stored)))


def _outdated(log: L, group_id: str, partition: TopicPartition, *, gone: bool) -> L:
    """Return the pending positions, marked so that they cannot replace the later change."""
    before = log.pending_of(group_id).get(partition, ())
    kept = () if gone else tuple(replace(each, stored=None) for each in before)
    return _put_pending(log, group_id, partition, kept) if kept != before else log


def fold_end(log: L, end: TransactionEnd) -> L:
    """C54: store or drop the positions of a transaction that ended."""
    for group_id, pending in log.pending.items():
        for partition, entries in pending.items():
            for at, each in enumerate(entries):
                if each.producer_id == end.producer_id:
                    log = _ended(log, group_id, partition, at, committed=end.committed)
    return log


def _ended(log: L, group_id: str, partition: TopicPartition, at: int, *, committed: bool) -> L:
    entries = log.pending_of(group_id)[partition]
    stored, earlier = entries[at].stored, entries[:at]
    if committed and stored is not None:
        earlier = tuple(replace(each, stored=None) for each in earlier)
        log = _with_offset(log, group_id, partition, stored)
    return _put_pending(log, group_id, partition, (*earlier, *entries[at + 1 :]))


def _stored(value: OffsetCommitValue) -> StoredOffset:
    return StoredOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
    )


def offset_record(
    group_id: str,
    partition: TopicPartition,
    position: OffsetAndMetadata,
    wall_ms: int,
    expire_timestamp: int = -1,
    topic_id: uuid.UUID = ZERO_UUID,
) -> GroupRecord:
    """Return the record that stores a position.

    It includes the topic id if the broker knows it, as in Kafka since 4.1.
    """
    return GroupRecord(
        OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition),
        OffsetCommitValue(
            offset=position.offset,
            leader_epoch=position.leader_epoch,
            metadata=position.metadata,
            commit_timestamp=wall_ms,
            expire_timestamp=expire_timestamp,
            topic_id=topic_id,
        ),
    )


def offset_tombstone(group_id: str, partition: TopicPartition) -> GroupRecord:
    """Return the record that deletes a position."""
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return GroupRecord(key, None)
