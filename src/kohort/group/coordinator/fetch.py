"""OffsetFetch: the positions of one group or, since version 8, of several (C55, KIP-709)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from kohort.errors import ErrorCode
from kohort.group.coordinator.records import (
    NO_PENDING,
    GroupLog,
    Offsets,
    PendingOffsets,
    StoredOffset,
)
from kohort.types import TopicPartition
from kohort.wire.codec.schema import ZERO_UUID
from kohort.wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

# C55: an answer without positions has no special form.
_NOTHING = StoredOffset(-1, -1, "", -1)
_SEVERAL_SINCE = 8


def fetch(
    log: GroupLog,
    request: OffsetFetchRequest,
    version: int,
    errors: Mapping[str, ErrorCode] | None = None,
) -> OffsetFetchResponse:
    """Return the requested positions; null topics request all stored ones.

    Args:
        log: Log state.
        request: The request.
        version: Its version.
        errors: The errors of groups whose positions the sender must not see (K37).
    """
    if version >= _SEVERAL_SINCE:
        refused = errors or {}
        groups = (
            OffsetFetchResponseGroup(
                group_id=group.group_id, topics=(), error_code=refused[group.group_id]
            )
            if group.group_id in refused
            else _group(log, group, require_stable=request.require_stable)
            for group in request.groups
        )
        return OffsetFetchResponse(groups=tuple(groups))
    offsets = log.offsets_of(request.group_id)
    unstable = log.pending_of(request.group_id) if request.require_stable else NO_PENDING
    asked = _asked(request.topics, offsets)
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=name, partitions=tuple(_partitions(offsets, unstable, name, indexes))
            )
            for name, indexes in asked
        )
    )


def _group(
    log: GroupLog, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    offsets = log.offsets_of(group.group_id)
    unstable = log.pending_of(group.group_id) if require_stable else NO_PENDING
    ids = {topic.name: topic.topic_id for topic in group.topics or ()}
    topics = (
        OffsetFetchResponseTopics(
            name=name,
            topic_id=ids.get(name, ZERO_UUID),
            partitions=tuple(_newer_partitions(offsets, unstable, name, indexes)),
        )
        for name, indexes in _asked(group.topics, offsets)
    )
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=tuple(topics))


def _asked(
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None, offsets: Offsets
) -> list[tuple[str, list[int]]]:
    if topics is not None:
        return [(topic.name, list(topic.partition_indexes)) for topic in topics]
    by_topic = groupby(sorted(offsets), key=lambda partition: partition.topic)
    return [(topic, [entry.partition for entry in entries]) for topic, entries in by_topic]


def _found(
    offsets: Offsets, unstable: PendingOffsets, partition: TopicPartition
) -> tuple[StoredOffset, ErrorCode]:
    """Return a position, or the error that an open transaction holds it (KIP-447)."""
    if partition in unstable:
        return _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
    return offsets.get(partition, _NOTHING), ErrorCode.NONE


def _partitions(
    offsets: Offsets, unstable: PendingOffsets, topic: str, indexes: Iterable[int]
) -> Iterator[OffsetFetchResponsePartition]:
    for index in indexes:
        stored, error = _found(offsets, unstable, TopicPartition(topic, index))
        yield OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=stored.offset,
            committed_leader_epoch=stored.leader_epoch,
            metadata=stored.metadata,
            error_code=error,
        )


def _newer_partitions(
    offsets: Offsets, unstable: PendingOffsets, topic: str, indexes: Iterable[int]
) -> Iterator[OffsetFetchResponsePartitions]:
    for index in indexes:
        stored, error = _found(offsets, unstable, TopicPartition(topic, index))
        yield OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=stored.offset,
            committed_leader_epoch=stored.leader_epoch,
            metadata=stored.metadata,
            error_code=error,
        )
