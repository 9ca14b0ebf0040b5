"""ConsumerGroupDescribe, and what the older APIs say of such a group (K38)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

from kohort.errors import ErrorCode, clipped
from kohort.group.coordinator.consumer.group import ConsumerGroup, Member
from kohort.group.coordinator.consumer.topics import TopicsImage
from kohort.wire.messages.consumer_group import (
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedTopicPartitions,
)
from kohort.wire.messages.groups import ListedGroup

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
    """Return the assignor of the members that made the target (K61), or the one it is made by."""
    word = next(iter(group.words.values()), None)
    return group.preferred_assignor(default) if word is None else word.assignor


def _member(group: ConsumerGroup, member: Member, topics: TopicsImage) -> DescribedConsumerMember:
    """A member still has what it has been told to give up (KAFKA-20431)."""
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
    """Return partitions with their topic's name; topics that are gone are left out."""
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


def not_found(group_id: str, message: str | None = None) -> DescribedConsumerGroup:
    """Return the answer for what is no group of this protocol."""
    return failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message or f"Group {group_id} not found.")


def failed(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedConsumerGroup:
    """Return the answer that says nothing of a group but an error."""
    return DescribedConsumerGroup(
        error_code=code,
        error_message=clipped(message),
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def listed(group: ConsumerGroup) -> ListedGroup:
    """Return the group's entry in a list."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type="consumer",
        group_state=group.state.value,
        group_type="consumer",
    )
