"""Offsets as requests to commit them, and the answers to those."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from kohort.errors import ErrorCode, KafkaError
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import ZERO_UUID
from kohort.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

# A request has no more offsets and, in the records that the coordinator writes, no more bytes.
_MOST_OFFSETS = 500
_MOST_BYTES = 256 * 1024
_RECORD_BYTES = 60

UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def in_parts(
    group: str | None, offsets: Offsets
) -> Iterator[dict[TopicPartition, OffsetAndMetadata]]:
    """Cut a commit into requests that a coordinator can store.

    It writes the offsets of one request as one batch of records, each with the names of the group
    and of the topic, and refuses a batch above the `max.message.bytes` of its topic.
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
    """Say which topics are meant, for versions that have no names."""
    by_name = {partition.topic: topic_id for partition, topic_id in ids.items()}
    topics = tuple(
        replace(topic, topic_id=by_name[topic.name] or ZERO_UUID) for topic in request.topics
    )
    return replace(request, topics=topics)


def codes_of(
    response: OffsetCommitResponse, ids: Mapping[TopicPartition, UUID | None]
) -> dict[TopicPartition, int]:
    """Return what became of each partition; topics are named as the version has it."""
    names = {topic_id: partition.topic for partition, topic_id in ids.items()}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), entry.partition_index): (
            entry.error_code
        )
        for topic in response.topics
        for entry in topic.partitions
    }


def worst(codes: Iterable[int]) -> int:
    """Return the error code to act upon: one that stays before one that passes, if there is one.

    What the coordinator does not know comes last: it is dealt with apart.
    """
    errors = [code for code in codes if code]
    known = [code for code in errors if code not in UNKNOWN]
    lasting = [code for code in known if not KafkaError(code).retriable]
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for _ in errors]
    return next(iter(lasting or known or unknown), ErrorCode.NONE)
