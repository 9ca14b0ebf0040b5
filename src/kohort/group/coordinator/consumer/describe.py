"""ConsumerGroupDescribe (K38)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import cast

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.decision import Passage
from kohort.group.coordinator.consumer.state.fold import GROUPS
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.refusals import ALL_OPERATIONS, consumer_describe_failed
from kohort.group.coordinator.session import ShardDecision
from kohort.group.coordinator.topics import TopicsImage
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedTopicPartitions,
)

_CLASSIC, _CONSUMER = 0, 1


def describe(
    group: ConsumerGroup, topics: TopicsImage, default_assignor: str
) -> DescribedConsumerGroup:
    """Return a group with its members, sorted by id."""
    return DescribedConsumerGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=_assignor(group, default_assignor),
        members=tuple(
            _member(group, member, topics) for _, member in sorted(group.members.items())
        ),
    )


def _assignor(group: ConsumerGroup, default: str) -> str:
    """Return the assignor of the members that made the target (K61), or the coordinator's."""
    word = next(iter(group.words.values()), None)
    return group.preferred_assignor(default) if word is None else word.assignor


def _member(group: ConsumerGroup, member: Member, topics: TopicsImage) -> DescribedConsumerMember:
    """Describe a member; it still owns the partitions it was told to give up (KAFKA-20431)."""
    has = {
        topic_id: [*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ())]
        for topic_id in {*member.assigned, *member.revoking}
    }
    return DescribedConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.regex,
        assignment=_assignment(has, topics),
        target_assignment=_assignment(group.target_of(member.member_id), topics),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(
    partitions: Mapping[uuid.UUID, Collection[int]], topics: TopicsImage
) -> DescribedAssignment:
    """Return partitions with their topic's name, except those of deleted topics."""
    return DescribedAssignment(
        topic_partitions=tuple(
            DescribedTopicPartitions(
                topic_id=topic_id,
                topic_name=topics.names[topic_id],
                partitions=tuple(sorted(partitions[topic_id])),
            )
            for topic_id in sorted(partitions)
            if topic_id in topics.names
        )
    )


def answer(shard: ShardDecision, arrived: RequestArrived[Message], passage: Passage) -> None:
    """K38: describe the groups of this protocol; any other is reported as not found."""
    request = cast("ConsumerGroupDescribeRequest", arrived.request)
    described = [_described(shard, group_id, passage) for group_id in request.group_ids]
    if request.include_authorized_operations:
        described = [
            group if group.error_code else replace(group, authorized_operations=ALL_OPERATIONS)
            for group in described
        ]
    shard.reply(arrived, ConsumerGroupDescribeResponse(groups=tuple(described)))


def _described(shard: ShardDecision, group_id: str, passage: Passage) -> DescribedConsumerGroup:
    if not group_id:
        return consumer_describe_failed(group_id, ErrorCode.INVALID_GROUP_ID)
    group = GROUPS.of(shard.log).get(group_id)
    if group is None:
        missing = passage.other(shard, group_id).deletion_error() is ErrorCode.GROUP_ID_NOT_FOUND
        message = f"Group {group_id} {'not found' if missing else 'is not a consumer group'}."
        return consumer_describe_failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    return describe(group, shard.session.topics, shard.config.group_consumer_assignors[0])
