"""Draft groups in the log: their values and records (D15).

The design kept a group in ZooKeeper. Here it is one record, written when the group becomes steady
and when its last consumer leaves, so that the next coordinator can continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from immutables import Map

from kohort.group.coordinator.draft.group import STORED, Consumer, DraftGroup, StoredDraftGroup
from kohort.group.coordinator.records import L
from kohort.types import TopicPartition
from kohort.wire.messages.draft import TopicAndPartition
from kohort.wire.messages.draft_records import (
    DraftGroupConsumer,
    DraftGroupKey,
    DraftGroupTopic,
    DraftGroupValue,
)
from kohort.wire.messages.group_records import GroupRecord


def stored_group(value: DraftGroupValue) -> StoredDraftGroup:
    """Read a record's value."""
    consumers = {entry.consumer_id: _consumer(entry) for entry in value.consumers}
    owned = {
        entry.consumer_id: tuple(TopicPartition(p.topic, p.partition) for p in entry.partitions)
        for entry in value.consumers
    }
    topics = {entry.topic: entry.partitions for entry in value.topics}
    return StoredDraftGroup(
        value.generation,
        value.next_sequence,
        value.assignor,
        Map(topics),
        Map(consumers),
        Map(owned),
    )


def _consumer(entry: DraftGroupConsumer) -> Consumer:
    return Consumer(
        consumer_id=entry.consumer_id,
        client_id=entry.client_id,
        host=entry.consumer_host,
        session_timeout_ms=entry.session_timeout_ms,
        heartbeat_frequency=entry.heartbeat_frequency,
        topics=entry.topics,
    )


def apply(log: L, record: GroupRecord) -> L:
    """Add or delete a group by its record."""
    key, value = cast("DraftGroupKey", record.key), record.value
    stored = stored_group(value) if isinstance(value, DraftGroupValue) else None
    return STORED.with_entry(log, key.group, stored)


def group_record(
    group: DraftGroup,
    assignor: str,
    topics: Mapping[str, int],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> GroupRecord:
    """Return the record of a group whose consumers own these partitions."""
    value = DraftGroupValue(
        generation=group.generation,
        next_sequence=group.next_sequence,
        assignor=assignor,
        topics=tuple(
            DraftGroupTopic(topic=topic, partitions=count)
            for topic, count in sorted(topics.items())
        ),
        consumers=tuple(
            DraftGroupConsumer(
                consumer_id=consumer.consumer_id,
                client_id=consumer.client_id,
                consumer_host=consumer.host,
                session_timeout_ms=consumer.session_timeout_ms,
                heartbeat_frequency=consumer.heartbeat_frequency,
                topics=consumer.topics,
                partitions=on_wire(owned.get(consumer.consumer_id, ())),
            )
            for consumer in group.sorted_consumers()
        ),
    )
    return GroupRecord(DraftGroupKey(group=group.group_id), value)


def on_wire(partitions: Iterable[TopicPartition]) -> tuple[TopicAndPartition, ...]:
    """Return partitions in the form of records and responses."""
    return tuple(
        TopicAndPartition(topic=p.topic, partition=p.partition) for p in sorted(partitions)
    )
