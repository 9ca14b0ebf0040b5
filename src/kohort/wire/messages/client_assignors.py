"""The two requests with which a member computes its group's assignment (KIP-848).

No release of Kafka has them (KAFKA-18327), so their API keys are far above Kafka's own.
"""

from __future__ import annotations

from kohort.wire.codec.schema import (
    Bytes,
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
)
from kohort.wire.messages.consumer_group import TopicPartitions


@message(api_key=30003, versions=(0, 0), flexible_since=0)
class ConsumerGroupPrepareAssignmentRequest(
    Request["ConsumerGroupPrepareAssignmentResponse"], frozen=True, kw_only=True
):
    """Ask for the group's data that an assignor needs."""

    group_id: String
    member_id: String
    member_epoch: Int32


class PreparedMember(Struct, frozen=True, kw_only=True):
    """A member: its subscription, the data of its assignor, and its current target."""

    member_id: String
    member_epoch: Int32
    instance_id: NullableString = None
    rack_id: NullableString = None
    subscribed_topic_names: tuple[String, ...]
    reason: Int8 = 0
    version: Int16 = 0
    metadata: Bytes = b""
    topic_partitions: tuple[TopicPartitions, ...]


class PreparedTopic(Struct, frozen=True, kw_only=True):
    """A topic that some member of the group subscribes to."""

    topic_id: Uuid
    topic_name: String
    num_partitions: Int32


@message(api_key=30003, versions=(0, 0), flexible_since=0)
class ConsumerGroupPrepareAssignmentResponse(Message, frozen=True, kw_only=True):
    """The group as the assignor sees it, complete for computing an assignment."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    group_epoch: Int32 = 0
    assignor_name: String = ""
    members: tuple[PreparedMember, ...] = ()
    topics: tuple[PreparedTopic, ...] = ()


class InstalledMember(Struct, frozen=True, kw_only=True):
    """The partitions of a member, and the data for its assignor."""

    member_id: String
    topic_partitions: tuple[TopicPartitions, ...]
    version: Int16 = 0
    metadata: Bytes = b""


@message(api_key=30004, versions=(0, 0), flexible_since=0)
class ConsumerGroupInstallAssignmentRequest(
    Request["ConsumerGroupInstallAssignmentResponse"], frozen=True, kw_only=True
):
    """The assignment for an epoch, or an error other than 0 if there is none."""

    group_id: String
    member_id: String
    member_epoch: Int32
    group_epoch: Int32
    error: Int8 = 0
    members: tuple[InstalledMember, ...] = ()


@message(api_key=30004, versions=(0, 0), flexible_since=0)
class ConsumerGroupInstallAssignmentResponse(Message, frozen=True, kw_only=True):
    """Whether the group uses the assignment."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
