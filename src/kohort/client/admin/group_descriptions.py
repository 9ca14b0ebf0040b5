"""Convert descriptions of groups to one value for all protocols."""

from __future__ import annotations

from kohort.client.admin.values import GroupDescription, MemberDescription
from kohort.errors import RemoteProtocolError
from kohort.group.subscription import Subscription, decode_assignment, decode_subscription
from kohort.types import TopicPartition
from kohort.wire.messages.consumer_group import (
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from kohort.wire.messages.groups import DescribedGroup, DescribedGroupMember

# Member types by their numbers in ConsumerGroupDescribe, from version 1 on.
_MEMBER_TYPES = {0: "classic", 1: "consumer"}


def classic_group(group: DescribedGroup) -> GroupDescription:
    """Convert a result of DescribeGroups."""
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        members=tuple(_classic_member(each) for each in group.members),
    )


def _classic_member(member: DescribedGroupMember) -> MemberDescription:
    try:
        subscription = decode_subscription(member.member_metadata)
        assignment, told = decode_assignment(member.member_assignment)
    except RemoteProtocolError:  # of a protocol other than consumers'
        subscription, assignment, told = Subscription(topics=frozenset()), frozenset(), None
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=subscription.topics,
        assignment=assignment,
        user_data=subscription.user_data,
        assigned_user_data=told,
    )


def consumer_group(group: DescribedConsumerGroup) -> GroupDescription:
    """Convert a result of ConsumerGroupDescribe (KIP-848)."""
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type="consumer",
        assignor=group.assignor_name,
        members=tuple(_consumer_member(each) for each in group.members),
        type="consumer",
        epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
    )


def _consumer_member(member: DescribedConsumerMember) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(member.subscribed_topic_names),
        assignment=_partitions(member.assignment),
        type=_MEMBER_TYPES.get(member.member_type, "consumer"),
        epoch=member.member_epoch,
        target_assignment=_partitions(member.target_assignment),
        pattern=member.subscribed_topic_regex or None,
        rack_id=member.rack_id,
    )


def _partitions(assignment: DescribedAssignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )
