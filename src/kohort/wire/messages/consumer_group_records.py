"""Records of the consumer protocol (KIP-848) in the `__consumer_offsets` topic.

The version of a key is the kind of the record: 3 a group, 4 the group's view of its topics
(written before Kafka 4.1), 5 a member, 6 and 7 the target assignment, 8 a member's partitions,
16 a regular expression and its topics. The kinds between are of other protocols.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from kohort.wire.codec.schema import (
    IGNORABLE,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    Tag,
    Uuid,
    message,
)
from kohort.wire.messages.consumer_group import PRIVATE_TAGS, AssignmentMetadata, ClientAssignor


@message(versions=(3, 3))
class ConsumerGroupMetadataKey(Message, frozen=True, kw_only=True):
    """Identifies a group."""

    group_id: String


@message(versions=(0, 0), flexible_since=0)
class ConsumerGroupMetadataValue(Message, frozen=True, kw_only=True):
    """The group's epoch, and since Kafka 4.1 a hash of its topics' metadata (KIP-1101)."""

    epoch: Int32
    metadata_hash: Annotated[Int64, Tag(0)] = 0


@message(versions=(4, 4))
class ConsumerGroupPartitionMetadataKey(Message, frozen=True, kw_only=True):
    """Identifies a group; no longer written since Kafka 4.1, except to remove it."""

    group_id: String


class PartitionRacks(Struct, frozen=True, kw_only=True):
    """The racks that have a replica of a partition; no longer used."""

    partition: Int32
    racks: tuple[String, ...]


class TopicMetadata(Struct, frozen=True, kw_only=True):
    """A topic as the group last saw it."""

    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: tuple[PartitionRacks, ...]


@message(versions=(0, 0), flexible_since=0)
class ConsumerGroupPartitionMetadataValue(Message, frozen=True, kw_only=True):
    """The topics the group subscribes to, as it last saw them."""

    topics: tuple[TopicMetadata, ...]


@message(versions=(5, 5))
class ConsumerGroupMemberMetadataKey(Message, frozen=True, kw_only=True):
    """Identifies a member of a group."""

    group_id: String
    member_id: String


class ClassicProtocol(Struct, frozen=True, kw_only=True):
    """An assignor that a member of the classic protocol knows, and its subscription."""

    name: String
    metadata: Bytes


class ClassicMemberMetadata(Struct, frozen=True, kw_only=True):
    """The stored fields of a member that speaks the classic protocol in a consumer group."""

    session_timeout_ms: Int32
    supported_protocols: tuple[ClassicProtocol, ...]


# Kafka's schema says that the default is null, but its code uses this: null is always written.
NO_METADATA = ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=())


@message(versions=(0, 0), flexible_since=0)
class ConsumerGroupMemberMetadataValue(Message, frozen=True, kw_only=True):
    """The fields that a member reported; the epoch and the assignment are in other records.

    `classic_member_metadata` is null for a member of the consumer protocol. Kafka ignores the
    assignors that a member can run (K60).
    """

    instance_id: NullableString
    rack_id: NullableString
    client_id: String
    client_host: String
    subscribed_topic_names: tuple[String, ...]
    subscribed_topic_regex: NullableString
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableString
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, Tag(0)] = NO_METADATA
    client_assignors: Annotated[tuple[ClientAssignor, ...], Tag(PRIVATE_TAGS + 1)] = ()


@message(versions=(6, 6))
class ConsumerGroupTargetAssignmentMetadataKey(Message, frozen=True, kw_only=True):
    """Identifies a group."""

    group_id: String


@message(versions=(0, 0), flexible_since=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message, frozen=True, kw_only=True):
    """The epoch of the target assignment, and since Kafka 4.3 its time (KIP-1263)."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, Tag(0), IGNORABLE] = 0


@message(versions=(7, 7))
class ConsumerGroupTargetAssignmentMemberKey(Message, frozen=True, kw_only=True):
    """Identifies a member of a group."""

    group_id: String
    member_id: String


class TargetTopicPartitions(Struct, frozen=True, kw_only=True):
    """Partitions of one topic in a member's target."""

    topic_id: Uuid
    partitions: tuple[Int32, ...]


@message(versions=(0, 0), flexible_since=0)
class ConsumerGroupTargetAssignmentMemberValue(Message, frozen=True, kw_only=True):
    """All partitions in a member's target."""

    topic_partitions: tuple[TargetTopicPartitions, ...]
    assignment_metadata: Annotated[AssignmentMetadata | None, Tag(PRIVATE_TAGS + 1)] = None


@message(versions=(8, 8))
class ConsumerGroupCurrentMemberAssignmentKey(Message, frozen=True, kw_only=True):
    """Identifies a member of a group."""

    group_id: String
    member_id: String


class OwnedTopicPartitions(Struct, frozen=True, kw_only=True):
    """Partitions of one topic that a member has, and since when (KIP-1251).

    `assignment_epochs` is as long as `partitions`: the member epoch at which each was assigned.
    """

    topic_id: Uuid
    partitions: tuple[Int32, ...]
    assignment_epochs: Annotated[tuple[Int32, ...] | None, Tag(0)] = ()


@message(versions=(0, 0), flexible_since=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message, frozen=True, kw_only=True):
    """A member's progress towards its target assignment."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: tuple[OwnedTopicPartitions, ...]
    partitions_pending_revocation: tuple[OwnedTopicPartitions, ...]


@message(versions=(16, 16))
class ConsumerGroupRegularExpressionKey(Message, frozen=True, kw_only=True):
    """Identifies a regular expression of a group."""

    group_id: String
    regular_expression: String


@message(versions=(0, 0), flexible_since=0)
class ConsumerGroupRegularExpressionValue(Message, frozen=True, kw_only=True):
    """The topics that a regular expression matched, and the cluster version it was matched with."""

    topics: tuple[String, ...]
    version: Int64
    timestamp: Int64


ConsumerGroupKey: TypeAlias = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
ConsumerGroupValue: TypeAlias = (
    ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)

# Key and value of each kind of record.
KINDS: tuple[tuple[type[ConsumerGroupKey], type[ConsumerGroupValue]], ...] = (
    (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)
