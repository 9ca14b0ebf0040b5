"""The group APIs: find the shard of a group, ask it, and merge the answers of several shards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar, cast

from kohort.broker.context import NODE_ID, BrokerContext, Caller
from kohort.broker.log.directory import Topic
from kohort.errors import ErrorCode
from kohort.values import replace
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupPrepareAssignmentRequest,
)
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
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

R = TypeVar("R", bound=Message)
OneGroup = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | ConsumerGroupHeartbeatRequest
    | ConsumerGroupPrepareAssignmentRequest
    | ConsumerGroupInstallAssignmentRequest
)
_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_NO_SUCH_KEY = "only groups and transactions have a coordinator in this broker"
_TOPIC_IDS_SINCE = 10  # of OffsetCommit and OffsetFetch (KIP-848)


def find_coordinator(
    broker: BrokerContext, request: FindCoordinatorRequest, caller: Caller
) -> FindCoordinatorResponse:
    """Return this broker, the only one."""
    code, message, node_id, (host, port) = ErrorCode.NONE, None, NODE_ID, broker.address
    if request.key_type not in (_GROUP_KEY, _TRANSACTION_KEY):
        code, message, node_id, (host, port) = ErrorCode.INVALID_REQUEST, _NO_SUCH_KEY, -1, ("", -1)
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
    """Pass a request about one group to the shard of that group."""
    return ask(broker, request.group_id, cast("Request[Message]", request), caller)


def ask(
    broker: BrokerContext, group_id: str, request: Request[R], caller: Caller
) -> R | Awaitable[R]:
    """Send a request to the shard of a group."""
    coordinator = broker.coordinator
    number = coordinator.shard_of(group_id)
    answer = coordinator.request(number, request, caller.version, caller.client_id, caller.host)
    return cast("R | Awaitable[R]", answer)


# ------------------------------------------------------------------------------------- offsets


def offset_commit(
    broker: BrokerContext, request: OffsetCommitRequest, caller: Caller
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit offsets; unknown partitions get an error each, as in Kafka.

    Since version 10 requests name topics by id. The shard does not know ids, so it gets name and
    id; the log stores both.
    """
    by_id = caller.version >= _TOPIC_IDS_SINCE
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        found = broker.topic_by_id(topic.topic_id) if by_id else broker.data.topics.get(topic.name)
        there = [p for p in topic.partitions if found and _has(found, p.partition_index)]
        if found and there:
            named = replace(topic, name=found.name, topic_id=found.topic_id)
            known.append(replace(named, partitions=tuple(there)))
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if by_id and not found:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        absent = tuple(
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
            if not (found and _has(found, p.partition_index))
        )
        if absent or not found:
            name, topic_id = topic.name, topic.topic_id
            refused.append(
                OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=absent)
            )
    if not known:
        return OffsetCommitResponse(topics=_joined((), refused, by_id))
    answer = ask(broker, request.group_id, replace(request, topics=tuple(known)), caller)
    return then(answer, lambda done: replace(done, topics=_joined(done.topics, refused, by_id)))


def _joined(
    done: tuple[OffsetCommitResponseTopic, ...],
    refused: list[OffsetCommitResponseTopic],
    by_id: bool,
) -> tuple[OffsetCommitResponseTopic, ...]:
    """Merge the partitions of each topic."""
    merged: dict[object, tuple[OffsetCommitResponseTopic, list[OffsetCommitResponsePartition]]] = {}
    for topic in (*done, *refused):
        key = topic.topic_id if by_id else topic.name
        _, partitions = merged.setdefault(key, (topic, []))
        partitions += topic.partitions
    return tuple(
        replace(topic, partitions=tuple(partitions)) for topic, partitions in merged.values()
    )


def _has(topic: Topic, partition: int) -> bool:
    return 0 <= partition < topic.partitions


def offset_delete(
    broker: BrokerContext, request: OffsetDeleteRequest, caller: Caller
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    """Delete committed offsets (KIP-496); only the broker knows which partitions exist."""
    known: list[OffsetDeleteRequestTopic] = []
    refused: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for topic in request.topics:
        found = broker.data.topics.get(topic.name)
        there = tuple(p for p in topic.partitions if found and _has(found, p.partition_index))
        if there:
            known.append(replace(topic, partitions=there))
        absent = tuple(
            OffsetDeleteResponsePartition(
                partition_index=p.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for p in topic.partitions
            if not (found and _has(found, p.partition_index))
        )
        if absent or not found:
            refused.setdefault(topic.name, []).extend(absent)
    answer = ask(broker, request.group_id, replace(request, topics=tuple(known)), caller)
    return then(answer, lambda done: _deleted(done, refused))


def _deleted(
    done: OffsetDeleteResponse, refused: Mapping[str, Sequence[OffsetDeleteResponsePartition]]
) -> OffsetDeleteResponse:
    """Add the partitions that do not exist, unless the whole request failed."""
    if done.error_code:
        return done
    names = dict.fromkeys((*(topic.name for topic in done.topics), *refused))
    given = {topic.name: topic.partitions for topic in done.topics}
    topics = tuple(
        OffsetDeleteResponseTopic(
            name=name, partitions=(*given.get(name, ()), *refused.get(name, ()))
        )
        for name in names
    )
    return replace(done, topics=topics)


def offset_fetch(
    broker: BrokerContext, request: OffsetFetchRequest, caller: Caller
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Return committed offsets, of several groups since version 8."""
    if caller.version < 8:
        return ask(broker, request.group_id, request, caller)
    answers = [_fetch_for_group(broker, request, group, caller) for group in request.groups]
    return _gather(
        answers,
        lambda done: OffsetFetchResponse(groups=tuple(g for r in done for g in r.groups)),
    )


def _fetch_for_group(
    broker: BrokerContext,
    request: OffsetFetchRequest,
    group: OffsetFetchRequestGroup,
    caller: Caller,
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Return the offsets of one group; since version 10 topics are identified by id."""
    if caller.version < _TOPIC_IDS_SINCE:
        return ask(broker, group.group_id, replace(request, groups=(group,)), caller)
    asked = [(topic, broker.topic_by_id(topic.topic_id)) for topic in group.topics or ()]
    if group.topics is not None:
        known = tuple(replace(topic, name=found.name) for topic, found in asked if found)
        group = replace(group, topics=known)
    refused = tuple(_no_such_id(topic) for topic, found in asked if not found)
    answer = ask(broker, group.group_id, replace(request, groups=(group,)), caller)
    return then(
        answer,
        lambda done: replace(
            done, groups=tuple(_with_ids(broker, group, refused) for group in done.groups)
        ),
    )


def _no_such_id(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    """Answer each partition with an error: without it, nothing would seem committed."""
    partitions = tuple(
        OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=-1,
            metadata="",
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
        )
        for partition in topic.partition_indexes
    )
    return OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions)


def _with_ids(
    broker: BrokerContext,
    group: OffsetFetchResponseGroup,
    refused: tuple[OffsetFetchResponseTopics, ...],
) -> OffsetFetchResponseGroup:
    """Add the ids of the topics to their names, and the topics that do not exist."""
    if group.error_code:
        return group
    topics = tuple(
        replace(topic, topic_id=broker.data.topics[topic.name].topic_id)
        for topic in group.topics
        if topic.name in broker.data.topics
    )
    return replace(group, topics=(*topics, *refused))


# ------------------------------------------------------------------------------------- admin


def describe_groups(
    broker: BrokerContext, request: DescribeGroupsRequest, caller: Caller
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    """Describe groups."""
    answers = [
        ask(broker, group_id, replace(request, groups=(group_id,)), caller)
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
        ask(broker, group_id, replace(request, group_ids=(group_id,)), caller)
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
        ask(broker, group_id, replace(request, groups_names=(group_id,)), caller)
        for group_id in dict.fromkeys(request.groups_names)
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


def then(answer: R | Awaitable[R], change: Callable[[R], R]) -> R | Awaitable[R]:
    """Change an answer, now or when it is available."""
    return _gather([answer], lambda done: change(next(iter(done))))


def _gather(answers: list[R | Awaitable[R]], merge: Callable[[Iterable[R]], R]) -> R | Awaitable[R]:
    """Merge answers, now or when all are available."""
    if not any(isinstance(answer, Awaitable) for answer in answers):
        return merge(cast("list[R]", answers))

    async def later() -> R:
        ready = [a for a in answers if not isinstance(a, Awaitable)]
        waited = await asyncio.gather(*(a for a in answers if isinstance(a, Awaitable)))
        return merge([*ready, *waited])

    return later()
