"""DescribeTopicPartitions: topics sorted by name, one page at a time (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.broker.authorization.acls import Operation, Resource
from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.coordination.transactions import INTERNAL_TOPICS
from kohort.broker.handlers.security import EVERYTHING_WITH_A_TOPIC
from kohort.broker.handlers.topics import is_legal
from kohort.broker.log.directory import Topic
from kohort.broker.log.partition_log import LEADER_EPOCH
from kohort.errors import ErrorCode
from kohort.values import replace
from kohort.wire.codec.schema import ZERO_UUID
from kohort.wire.messages.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

# Kafka's max.request.partition.size.limit.
_PARTITIONS_PER_PAGE = 2_000


def describe_topic_partitions(
    broker: BrokerContext, request: DescribeTopicPartitionsRequest, caller: Caller
) -> DescribeTopicPartitionsResponse:
    """Describe topics from the cursor on, and return the cursor of the next page."""
    asked = {each.name for each in request.topics}
    cursor = request.cursor or Cursor(topic_name="", partition_index=0)
    strays = bool(asked and request.cursor) and cursor.topic_name not in asked
    if strays or cursor.partition_index < 0:
        refused = (_unknown(each.name, ErrorCode.INVALID_REQUEST) for each in request.topics)
        return DescribeTopicPartitionsResponse(topics=tuple(refused))
    may = caller.rights.may
    seen = (name for name in broker.data.topics if may(Operation.DESCRIBE, Resource.TOPIC, name))
    names = sorted(asked or seen)
    room = max(min(request.response_partition_limit, _PARTITIONS_PER_PAGE), 1)
    page: list[DescribeTopicPartitionsResponseTopic] = []
    for name in (name for name in names if name >= cursor.topic_name):
        first = cursor.partition_index if name == cursor.topic_name else 0
        if not room:
            return _page(page, Cursor(topic_name=name, partition_index=first))
        topic = broker.data.topics.get(name)
        if topic is None:
            page.append(_missing(name))
            continue
        end = min(first + room, topic.partitions)
        page.append(_described(topic, range(first, end)))
        room -= max(end - first, 0)
        if end < topic.partitions:
            return _page(page, Cursor(topic_name=name, partition_index=end))
    return _page(page, None)


def _page(
    topics: Iterable[DescribeTopicPartitionsResponseTopic], next_cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=next_cursor)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    legal = is_legal(name)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    return replace(_unknown(name, code), topic_authorized_operations=EVERYTHING_WITH_A_TOPIC)


def _unknown(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=ZERO_UUID, partitions=()
    )


def _described(topic: Topic, numbers: Iterable[int]) -> DescribeTopicPartitionsResponseTopic:
    partitions = (
        DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=number,
            leader_id=NODE_ID,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=(NODE_ID,),
            isr_nodes=(NODE_ID,),
            eligible_leader_replicas=(),
            last_known_elr=(),
            offline_replicas=(),
        )
        for number in numbers
    )
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(partitions),
        topic_authorized_operations=EVERYTHING_WITH_A_TOPIC,
    )
