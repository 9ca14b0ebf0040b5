"""OffsetFetch: the positions of one group, or since version 8 of several (C55, KIP-709)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from kohort.errors import ErrorCode
from kohort.group.coordinator.offsets.fold import StoredOffset
from kohort.group.coordinator.records import LogState, Offsets
from kohort.types import TopicPartition
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
from kohort.wire.schema import ZERO_UUID

# C55: nothing stored is an answer like any other.
_NOTHING = StoredOffset(-1, -1, "", -1)
_SEVERAL_SINCE = 8


def fetch(
    log: LogState,
    request: OffsetFetchRequest,
    version: int,
    errors: Mapping[str, ErrorCode] | None = None,
) -> OffsetFetchResponse:
    """Return the positions asked for; null topics mean all that are stored.

    Args:
        log: Log state.
        request: What is asked.
        version: Its version.
        errors: Groups whose positions are not told to the sender, and why (K37).
    """
    if version >= _SEVERAL_SINCE:
        refused = errors or {}
        groups = (
            OffsetFetchResponseGroup(
                group_id=group.group_id, topics=(), error_code=refused[group.group_id]
            )
            if group.group_id in refused
            else _group(log, group)
            for group in request.groups
        )
        return OffsetFetchResponse(groups=tuple(groups))
    offsets = log.offsets_of(request.group_id)
    asked = _asked(request.topics, offsets)
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=name, partitions=tuple(_partitions(offsets, name, indexes))
            )
            for name, indexes in asked
        )
    )


def _group(log: LogState, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    offsets = log.offsets_of(group.group_id)
    ids = {topic.name: topic.topic_id for topic in group.topics or ()}
    topics = (
        OffsetFetchResponseTopics(
            name=name,
            topic_id=ids.get(name, ZERO_UUID),
            partitions=tuple(_newer_partitions(offsets, name, indexes)),
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


def _partitions(
    offsets: Offsets, topic: str, indexes: Iterable[int]
) -> Iterator[OffsetFetchResponsePartition]:
    for index in indexes:
        stored = offsets.get(TopicPartition(topic, index), _NOTHING)
        yield OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=stored.offset,
            committed_leader_epoch=stored.leader_epoch,
            metadata=stored.metadata,
            error_code=0,
        )


def _newer_partitions(
    offsets: Offsets, topic: str, indexes: Iterable[int]
) -> Iterator[OffsetFetchResponsePartitions]:
    for index in indexes:
        stored = offsets.get(TopicPartition(topic, index), _NOTHING)
        yield OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=stored.offset,
            committed_leader_epoch=stored.leader_epoch,
            metadata=stored.metadata,
            error_code=0,
        )
