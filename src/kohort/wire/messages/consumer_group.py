"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the consumer protocol of KIP-848.

Kafka removed assignors that run in a member from the proposal before any release (K60). Here they
are in tagged fields (KIP-482) above `PRIVATE_TAGS`: peers that do not know these skip them, and
they are written only if they have a value.
"""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Request,
    String,
    Struct,
    Tag,
    Uuid,
    message,
    since,
)

# Kafka allocates tags from 0 on, and will never reach this one.
PRIVATE_TAGS = 10_000


class TopicPartitions(Struct, frozen=True, kw_only=True):
    """Partitions of one topic, by its id."""

    topic_id: Uuid
    partitions: tuple[Int32, ...]


class ClientAssignor(Struct, frozen=True, kw_only=True):
    """An assignor that a member can run, and its data for the assignor that computes.

    The metadata has a version; the assignor reads versions from the lowest to the highest. A reason
    other than 0 is specific to the assignor, and requests another assignment.
    """

    name: String
    minimum_version: Int16 = 0
    maximum_version: Int16 = 0
    reason: Int8 = 0
    version: Int16 = 0
    metadata: Bytes = b""


class AssignmentMetadata(Struct, frozen=True, kw_only=True):
    """Data from the computing assignor for the assignor of that name in a member."""

    assignor: String
    version: Int16 = 0
    metadata: Bytes = b""


@message(api_key=68, versions=(0, 1), flexible_since=0)
class ConsumerGroupHeartbeatRequest(
    Request["ConsumerGroupHeartbeatResponse"], frozen=True, kw_only=True
):
    """Join, stay in, or leave a group; null and -1 mean unchanged.

    The epoch is 0 to join, -1 to leave, -2 for a static member that will return.
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
    client_assignors: Annotated[
        tuple[ClientAssignor, ...] | None, Tag(PRIVATE_TAGS + 1), since(1), IGNORABLE
    ] = None


class Assignment(Struct, frozen=True, kw_only=True):
    """The partitions that a member may consume now."""

    topic_partitions: tuple[TopicPartitions, ...]


@message(api_key=68, versions=(0, 1), flexible_since=0)
class ConsumerGroupHeartbeatResponse(Message, frozen=True, kw_only=True):
    """The member's epoch, and its assignment if it has changed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
    should_compute_assignment: Annotated[Bool, Tag(PRIVATE_TAGS + 1), since(1), IGNORABLE] = False
    assignment_metadata: Annotated[
        AssignmentMetadata | None, Tag(PRIVATE_TAGS + 2), since(1), IGNORABLE
    ] = None


@message(api_key=69, versions=(0, 1), flexible_since=0)
class ConsumerGroupDescribeRequest(
    Request["ConsumerGroupDescribeResponse"], frozen=True, kw_only=True
):
    """Ask for groups of the consumer protocol and their members."""

    group_ids: tuple[String, ...]
    include_authorized_operations: Bool = False


class DescribedTopicPartitions(Struct, frozen=True, kw_only=True):
    """Partitions of one topic, by id and name."""

    topic_id: Uuid
    topic_name: String
    partitions: tuple[Int32, ...]


class DescribedAssignment(Struct, frozen=True, kw_only=True):
    """The current or target partitions of a member."""

    topic_partitions: tuple[DescribedTopicPartitions, ...]


class DescribedConsumerMember(Struct, frozen=True, kw_only=True):
    """A member: its identity, its subscription, its partitions and its target."""

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


class DescribedConsumerGroup(Struct, frozen=True, kw_only=True):
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
class ConsumerGroupDescribeResponse(Message, frozen=True, kw_only=True):
    """The requested groups."""

    throttle_time_ms: Int32 = 0
    groups: tuple[DescribedConsumerGroup, ...]
