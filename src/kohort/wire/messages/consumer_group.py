"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the consumer protocol of KIP-848."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.schema import (
    IGNORABLE,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
    message,
    since,
    struct,
)


@struct
class TopicPartitions(Struct):
    """Partitions of one topic, by its id."""

    topic_id: Uuid
    partitions: tuple[Int32, ...]


@message(api_key=68, versions=(0, 1), flexible_since=0)
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    """Join, stay in, or leave a group; null and -1 stand for what did not change.

    The epoch is 0 to join, -1 to leave, -2 for a static member that will come back.
    """

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: tuple[String, ...] | None = None
    subscribed_topic_regex: Annotated[NullableString, since(1)] = None
    server_assignor: NullableString = None
    topic_partitions: tuple[TopicPartitions, ...] | None = None


@struct
class Assignment(Struct):
    """The partitions that a member may consume now."""

    topic_partitions: tuple[TopicPartitions, ...]


@message(api_key=68, versions=(0, 1), flexible_since=0)
class ConsumerGroupHeartbeatResponse(Message):
    """The member's epoch, and its assignment where that is new to it."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


@message(api_key=69, versions=(0, 1), flexible_since=0)
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    """Ask for groups of the consumer protocol and their members."""

    group_ids: tuple[String, ...]
    include_authorized_operations: Bool = False


@struct
class DescribedTopicPartitions(Struct):
    """Partitions of one topic, by id and name."""

    topic_id: Uuid
    topic_name: String
    partitions: tuple[Int32, ...]


@struct
class DescribedAssignment(Struct):
    """What a member has, or will have."""

    topic_partitions: tuple[DescribedTopicPartitions, ...]


@struct
class DescribedConsumerMember(Struct):
    """A member: who it is, what it asks for, what it has and what it is to have."""

    member_id: String
    instance_id: NullableString = None
    rack_id: NullableString = None
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: tuple[String, ...]
    subscribed_topic_regex: NullableString = None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: Annotated[Int8, since(1), IGNORABLE] = -1


@struct
class DescribedConsumerGroup(Struct):
    """One group: its epochs, its assignor and its members."""

    error_code: Int16
    error_message: NullableString = None
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: tuple[DescribedConsumerMember, ...]
    authorized_operations: Int32 = -2147483648


@message(api_key=69, versions=(0, 1), flexible_since=0)
class ConsumerGroupDescribeResponse(Message):
    """The groups asked for."""

    throttle_time_ms: Int32 = 0
    groups: tuple[DescribedConsumerGroup, ...]
