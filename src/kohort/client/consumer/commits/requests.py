"""OffsetCommit requests for offsets, and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from kohort.errors import ErrorCode, KafkaError
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import ZERO_UUID
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

# Limits of a request: its offsets, and the bytes of the records that the coordinator writes.
_MOST_OFFSETS = 500
_MOST_BYTES = 256 * 1024
_RECORD_BYTES = 60

UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def in_parts(
    group: str | None, offsets: Offsets
) -> Iterator[dict[TopicPartition, OffsetAndMetadata]]:
    """Split a commit into requests that a coordinator can store.

    The coordinator writes the offsets of one request as one batch of records, each with the names
    of group and topic, and refuses a batch larger than the `max.message.bytes` of its topic.
    """
    part: dict[TopicPartition, OffsetAndMetadata] = {}
    size = 0
    for partition, position in offsets.items():
        names = len(group or "") + len(partition.topic.encode())
        more = _RECORD_BYTES + names + len(position.metadata.encode())
        if part and (size + more > _MOST_BYTES or len(part) == _MOST_OFFSETS):
            yield part
            part, size = {}, 0
        part[partition] = position
        size += more
    if part:
        yield part


def with_ids(
    request: OffsetCommitRequest, ids: Mapping[TopicPartition, UUID | None]
) -> OffsetCommitRequest:
    """Add topic ids, for versions without topic names."""
    by_name = {partition.topic: topic_id for partition, topic_id in ids.items()}
    topics = tuple(
        replace(topic, topic_id=by_name[topic.name] or ZERO_UUID) for topic in request.topics
    )
    return replace(request, topics=topics)


def codes_of(
    response: OffsetCommitResponse, ids: Mapping[TopicPartition, UUID | None]
) -> dict[TopicPartition, int]:
    """Return the error code of each partition; topics by name or id, depending on the version."""
    names = {topic_id: partition.topic for partition, topic_id in ids.items()}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), entry.partition_index): (
            entry.error_code
        )
        for topic in response.topics
        for entry in topic.partitions
    }


def worst(codes: Iterable[int]) -> int:
    """Return the error code to act upon: permanent errors before transient ones, if any.

    Unknown topics and partitions come last: they are handled separately.
    """
    errors = [code for code in codes if code]
    known = [code for code in errors if code not in UNKNOWN]
    lasting = [code for code in known if not KafkaError(code).retriable]
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for _ in errors]
    return next(iter(lasting or known or unknown), ErrorCode.NONE)
