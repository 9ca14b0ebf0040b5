"""Turn an OffsetDelete into tombstones; which topics are in use is told by the group's protocol."""

from __future__ import annotations

from collections.abc import Collection

from kohort.errors import ErrorCode
from kohort.group.coordinator.offsets.fold import offset_tombstone
from kohort.group.coordinator.records import Offsets
from kohort.types import TopicPartition
from kohort.values import dataclass
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """Tombstones to append, and the answer once they are."""

    records: tuple[GroupRecord, ...]
    response: OffsetDeleteResponse


def delete(request: OffsetDeleteRequest, stored: Offsets, in_use: Collection[str]) -> DeleteResult:
    """Return what has to be written; a position that was never stored is no error (KIP-496).

    Args:
        request: The request.
        stored: The positions of the group.
        in_use: Topics of the request that members subscribe to: their positions stay.
    """
    records = tuple(
        offset_tombstone(request.group_id, partition)
        for topic in request.topics
        if topic.name not in in_use
        for partition in dict.fromkeys(
            TopicPartition(topic.name, entry.partition_index) for entry in topic.partitions
        )
        if partition in stored
    )
    topics = tuple(
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(
                    partition_index=entry.partition_index, error_code=_code(topic.name in in_use)
                )
                for entry in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return DeleteResult(records, OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics))


def _code(is_in_use: bool) -> ErrorCode:
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_in_use else ErrorCode.NONE
