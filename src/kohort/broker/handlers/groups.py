"""The group APIs: find the shard, ask it, and put the answers of several shards together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TypeVar, cast

from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.errors import ErrorCode
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
)
from kohort.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kohort.wire.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from kohort.wire.schema import Message, Request

R = TypeVar("R", bound=Message)
OneGroup = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | ConsumerGroupHeartbeatRequest
)
_GROUP_KEY, _TRANSACTION_KEY = 0, 1


def find_coordinator(
    broker: BrokerContext, request: FindCoordinatorRequest, caller: Caller
) -> FindCoordinatorResponse:
    """Name this broker, for there is no other; transactions have no coordinator here."""
    host, port = broker.address
    code = ErrorCode.NONE if request.key_type == _GROUP_KEY else ErrorCode.INVALID_REQUEST
    known = code is ErrorCode.NONE
    node_id, host, port = (NODE_ID, host, port) if known else (-1, "", -1)
    message = None if known else "only groups have a coordinator in this broker"
    if caller.version < 4:
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=node_id, host=host, port=port
        )
    found = (
        Coordinator(
            key=key,
            node_id=node_id,
            host=host,
            port=port,
            error_code=code,
            error_message=message,
        )
        for key in request.coordinator_keys
    )
    return FindCoordinatorResponse(coordinators=tuple(found))


def one_group(
    broker: BrokerContext, request: OneGroup, caller: Caller
) -> Message | Awaitable[Message]:
    """Hand a request that is about one group to that group's shard."""
    return _ask(broker, request.group_id, cast("Request[Message]", request), caller)


def _ask(
    broker: BrokerContext, group_id: str, request: Request[R], caller: Caller
) -> R | Awaitable[R]:
    coordinator = broker.coordinator
    number = coordinator.shard_of(group_id)
    answer = coordinator.request(number, request, caller.version, caller.client_id, caller.host)
    return cast("R | Awaitable[R]", answer)


# ------------------------------------------------------------------------------------- offsets


def offset_commit(
    broker: BrokerContext, request: OffsetCommitRequest, caller: Caller
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Store positions; since version 10 topics come as ids, which the shard does not know."""
    if caller.version < 10:
        return _ask(broker, request.group_id, request, caller)
    known, unknown = [], []
    for topic in request.topics:
        found = broker.topic_by_id(topic.topic_id)
        if found is None:
            unknown.append(topic)
        else:
            known.append(replace(topic, name=found.name))
    answer = _ask(broker, request.group_id, replace(request, topics=tuple(known)), caller)
    refused = tuple(
        OffsetCommitResponseTopic(
            topic_id=topic.topic_id,
            partitions=tuple(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                )
                for partition in topic.partitions
            ),
        )
        for topic in unknown
    )
    return _then(answer, lambda done: replace(done, topics=(*done.topics, *refused)))


def offset_delete(
    broker: BrokerContext, request: OffsetDeleteRequest, caller: Caller
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    """Forget positions (KIP-496); only the broker knows which topics there are."""
    known = tuple(topic for topic in request.topics if topic.name in broker.data.topics)
    unknown = tuple(
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
        if topic.name not in broker.data.topics
    )
    answer = _ask(broker, request.group_id, replace(request, topics=known), caller)
    return _then(answer, lambda a: a if a.error_code else replace(a, topics=a.topics + unknown))


def offset_fetch(
    broker: BrokerContext, request: OffsetFetchRequest, caller: Caller
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Return positions, of several groups since version 8."""
    if caller.version < 8:
        return _ask(broker, request.group_id, request, caller)
    answers = []
    for group in request.groups:
        topics = group.topics
        if caller.version >= 10 and topics is not None:
            names = ((topic, broker.topic_by_id(topic.topic_id)) for topic in topics)
            topics = tuple(replace(t, name=found.name) for t, found in names if found)
        one = replace(request, groups=(replace(group, topics=topics),))
        answers.append(_ask(broker, group.group_id, one, caller))
    return _gather(
        answers,
        lambda done: OffsetFetchResponse(
            groups=tuple(_with_ids(broker, g, caller) for r in done for g in r.groups)
        ),
    )


def _with_ids(
    broker: BrokerContext, group: OffsetFetchResponseGroup, caller: Caller
) -> OffsetFetchResponseGroup:
    """Put the ids of the topics beside their names, which is all that version 10 sends."""
    if caller.version < 10:
        return group
    topics = tuple(
        replace(topic, topic_id=broker.data.topics[topic.name].topic_id)
        for topic in group.topics
        if topic.name in broker.data.topics
    )
    return replace(group, topics=topics)


# ------------------------------------------------------------------------------------- admin


def describe_groups(
    broker: BrokerContext, request: DescribeGroupsRequest, caller: Caller
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    """Describe groups."""
    answers = [
        _ask(broker, group_id, replace(request, groups=(group_id,)), caller)
        for group_id in request.groups
    ]
    return _gather(
        answers,
        lambda done: DescribeGroupsResponse(groups=tuple(g for r in done for g in r.groups)),
    )


def consumer_group_describe(
    broker: BrokerContext, request: ConsumerGroupDescribeRequest, caller: Caller
) -> ConsumerGroupDescribeResponse | Awaitable[ConsumerGroupDescribeResponse]:
    """Describe groups of the consumer protocol (KIP-848)."""
    answers = [
        _ask(broker, group_id, replace(request, group_ids=(group_id,)), caller)
        for group_id in request.group_ids
    ]
    return _gather(
        answers,
        lambda done: ConsumerGroupDescribeResponse(groups=tuple(g for r in done for g in r.groups)),
    )


def delete_groups(
    broker: BrokerContext, request: DeleteGroupsRequest, caller: Caller
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    """Delete groups."""
    answers = [
        _ask(broker, group_id, replace(request, groups_names=(group_id,)), caller)
        for group_id in request.groups_names
    ]
    return _gather(
        answers,
        lambda done: DeleteGroupsResponse(results=tuple(g for r in done for g in r.results)),
    )


def list_groups(
    broker: BrokerContext, request: ListGroupsRequest, caller: Caller
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    """List the groups of every shard."""
    coordinator = broker.coordinator
    answers = [
        cast(
            "ListGroupsResponse | Awaitable[ListGroupsResponse]",
            coordinator.request(number, request, caller.version, caller.client_id, caller.host),
        )
        for number in range(len(coordinator.shards))
    ]
    return _gather(
        answers,
        lambda done: ListGroupsResponse(
            error_code=ErrorCode.NONE, groups=tuple(g for r in done for g in r.groups)
        ),
    )


# ------------------------------------------------------------------------------------- both kinds


def _then(answer: R | Awaitable[R], change: Callable[[R], R]) -> R | Awaitable[R]:
    return _gather([answer], lambda done: change(next(iter(done))))


def _gather(answers: list[R | Awaitable[R]], merge: Callable[[Iterable[R]], R]) -> R | Awaitable[R]:
    """Merge answers that are there, or that will be."""
    if not any(isinstance(answer, Awaitable) for answer in answers):
        return merge(cast("list[R]", answers))

    async def later() -> R:
        ready = [a for a in answers if not isinstance(a, Awaitable)]
        waited = await asyncio.gather(*(a for a in answers if isinstance(a, Awaitable)))
        return merge([*ready, *waited])

    return later()
