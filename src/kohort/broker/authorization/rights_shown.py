"""Removes from responses what the client may not see, and adds its authorized operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from kohort.broker.authorization.acls import CLUSTER, Operation, Resource, Rights
from kohort.errors import ErrorCode
from kohort.values import replace
from kohort.wire.codec.schema import Message, Struct
from kohort.wire.messages.cluster import DescribeClusterResponse
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from kohort.wire.messages.groups import DescribeGroupsResponse, ListGroupsResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse
from kohort.wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kohort.wire.messages.topic_partitions import DescribeTopicPartitionsResponse
from kohort.wire.messages.topics import CreateTopicsResponse
from kohort.wire.messages.transactions import (
    DescribeTransactionsResponse,
    ListTransactionsResponse,
)

S = TypeVar("S", bound=Struct)
T = TypeVar("T", MetadataResponse, DescribeTopicPartitionsResponse)
G = TypeVar("G", DescribeGroupsResponse, ConsumerGroupDescribeResponse)
P = TypeVar("P", OffsetFetchResponseTopic, OffsetFetchResponseTopics)

_NOT_ASKED = -2147483648
_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def shown(request: Message, answer: Message, rights: Rights) -> Message:
    """Return a response as a client with these permissions may see it."""
    change = _CHANGES.get(type(answer))
    return answer if change is None else change(request, answer, rights)


def _may_see(rights: Rights, topic: str | None) -> bool:
    return topic is None or rights.may(Operation.DESCRIBE, Resource.TOPIC, topic)


def _with_operations(parts: tuple[S, ...], field: str, kind: Resource, rights: Rights) -> Any:  # noqa: ANN401  # of two kinds
    """Replace the possible operations of each item by those that the client may perform."""
    named = "group_id" if kind is Resource.GROUP else "name"
    return tuple(
        part
        if (possible := getattr(part, field)) == _NOT_ASKED
        else replace(part, **{field: rights.operations(kind, getattr(part, named) or "", possible)})
        for part in parts
    )


def _cluster(answer: S, rights: Rights) -> S:
    field = "cluster_authorized_operations"
    asked = getattr(answer, field)
    if asked == _NOT_ASKED:
        return answer
    sees = rights.may(Operation.DESCRIBE, Resource.CLUSTER)
    possible = rights.operations(Resource.CLUSTER, CLUSTER, asked) if sees else 0
    return replace(answer, **{field: possible})


def _topics(answer: T, rights: Rights) -> T:
    field = "topic_authorized_operations"
    topics = _with_operations(answer.topics, field, Resource.TOPIC, rights)
    return replace(answer, topics=topics)


def _metadata(request: MetadataRequest, answer: MetadataResponse, rights: Rights) -> Message:
    if not request.topics:
        seen = tuple(topic for topic in answer.topics if _may_see(rights, topic.name))
        answer = replace(answer, topics=seen)
    return _cluster(_topics(answer, rights), rights)


def _list_groups(_request: Message, answer: ListGroupsResponse, rights: Rights) -> Message:
    if rights.may(Operation.DESCRIBE, Resource.CLUSTER):
        return answer
    may = rights.may
    seen = (g for g in answer.groups if may(Operation.DESCRIBE, Resource.GROUP, g.group_id))
    return replace(answer, groups=tuple(seen))


def _transactions(_request: Message, answer: ListTransactionsResponse, rights: Rights) -> Message:
    seen = (
        each
        for each in answer.transaction_states
        if rights.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, each.transactional_id)
    )
    return replace(answer, transaction_states=tuple(seen))


def _transaction_topics(
    _request: Message, answer: DescribeTransactionsResponse, rights: Rights
) -> Message:
    states = (
        replace(each, topics=tuple(t for t in each.topics if _may_see(rights, t.topic)))
        for each in answer.transaction_states
    )
    return replace(answer, transaction_states=tuple(states))


def _groups(_request: Message, answer: G, rights: Rights) -> G:
    groups = _with_operations(answer.groups, "authorized_operations", Resource.GROUP, rights)
    return replace(answer, groups=groups)


def _consumer_groups(
    request: Message, answer: ConsumerGroupDescribeResponse, rights: Rights
) -> Message:
    groups = tuple(
        replace(
            group,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message=_HIDDEN,
            members=(),
        )
        if not all(_may_see(rights, name) for name in _assigned(group))
        else group
        for group in answer.groups
    )
    return _groups(request, replace(answer, groups=groups), rights)


def _assigned(group: DescribedConsumerGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _created(_request: Message, answer: CreateTopicsResponse, rights: Rights) -> Message:
    """Remove the settings of a topic whose settings the client may not see."""
    topics = (
        topic
        if topic.error_code or rights.may(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name)
        else replace(
            topic,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        )
        for topic in answer.topics
    )
    return replace(answer, topics=tuple(topics))


def _offsets(request: OffsetFetchRequest, answer: OffsetFetchResponse, rights: Rights) -> Message:
    named = {group.group_id for group in request.groups if group.topics is not None}
    groups = (
        replace(group, topics=_positions(group.topics, rights, group.group_id in named))
        for group in answer.groups
    )
    topics = _positions(answer.topics, rights, request.topics is not None)
    return replace(answer, topics=topics, groups=tuple(groups))


def _positions(topics: tuple[P, ...], rights: Rights, are_named: bool) -> tuple[P, ...]:
    """Remove topics that the client may not see; those that it named get an error."""
    if not are_named:
        return tuple(topic for topic in topics if _may_see(rights, topic.name))
    return tuple(
        topic if _may_see(rights, topic.name or None) else _without_positions(topic)
        for topic in topics
    )


def _without_positions(topic: P) -> P:
    partitions = (
        replace(
            each,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=each.error_code or ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
        for each in cast("tuple[Any, ...]", topic.partitions)
    )
    return replace(topic, partitions=tuple(partitions))


_Change = Callable[[Any, Any, Rights], Message]
_CHANGES: dict[type[Message], _Change] = {
    ConsumerGroupDescribeResponse: _consumer_groups,
    CreateTopicsResponse: _created,
    DescribeClusterResponse: lambda _request, answer, rights: _cluster(answer, rights),
    DescribeGroupsResponse: _groups,
    DescribeTopicPartitionsResponse: lambda _request, answer, rights: _topics(answer, rights),
    DescribeTransactionsResponse: _transaction_topics,
    ListGroupsResponse: _list_groups,
    ListTransactionsResponse: _transactions,
    MetadataResponse: _metadata,
    OffsetFetchResponse: _offsets,
}
