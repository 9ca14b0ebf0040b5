"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableSince,
    NullableString,
    Request,
    String,
    Struct,
    Tag,
    Uuid,
    message,
    since,
    until,
)


class CreatableReplicaAssignment(Struct, frozen=True, kw_only=True):
    """The brokers of one new partition."""

    partition_index: Int32
    broker_ids: tuple[Int32, ...]


class CreatableTopicConfig(Struct, frozen=True, kw_only=True):
    """A setting of a topic to create."""

    name: String
    value: NullableString


class CreatableTopic(Struct, frozen=True, kw_only=True):
    """A topic to create."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: tuple[CreatableReplicaAssignment, ...]
    configs: tuple[CreatableTopicConfig, ...]


@message(api_key=19, versions=(2, 7), flexible_since=5)
class CreateTopicsRequest(Request["CreateTopicsResponse"], frozen=True, kw_only=True):
    """Create topics."""

    topics: tuple[CreatableTopic, ...]
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Struct, frozen=True, kw_only=True):
    """A setting that a created topic has."""

    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool


class CreatableTopicResult(Struct, frozen=True, kw_only=True):
    """The result for one topic to create."""

    name: String
    topic_id: Annotated[Uuid, since(7), IGNORABLE] = ZERO_UUID
    error_code: Int16
    error_message: NullableString
    topic_config_error_code: Annotated[Int16, since(5), Tag(0), IGNORABLE] = 0
    num_partitions: Annotated[Int32, since(5), IGNORABLE] = -1
    replication_factor: Annotated[Int16, since(5), IGNORABLE] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, since(5), IGNORABLE] = ()


@message(api_key=19, versions=(2, 7), flexible_since=5)
class CreateTopicsResponse(Message, frozen=True, kw_only=True):
    """The result for each topic to create."""

    throttle_time_ms: Int32 = 0
    topics: tuple[CreatableTopicResult, ...]


class DeleteTopicState(Struct, frozen=True, kw_only=True):
    """A topic to delete, by name or by id."""

    name: NullableString = None
    topic_id: Uuid


@message(api_key=20, versions=(1, 6), flexible_since=4)
class DeleteTopicsRequest(Request["DeleteTopicsResponse"], frozen=True, kw_only=True):
    """Delete topics."""

    topics: Annotated[tuple[DeleteTopicState, ...], since(6)] = ()
    topic_names: Annotated[tuple[String, ...], until(5), IGNORABLE] = ()
    timeout_ms: Int32


class DeletableTopicResult(Struct, frozen=True, kw_only=True):
    """The result for one topic to delete."""

    name: Annotated[NullableString, NullableSince(6)]
    topic_id: Annotated[Uuid, since(6), IGNORABLE] = ZERO_UUID
    error_code: Int16
    error_message: Annotated[NullableString, since(5), IGNORABLE] = None


@message(api_key=20, versions=(1, 6), flexible_since=4)
class DeleteTopicsResponse(Message, frozen=True, kw_only=True):
    """The result for each topic to delete."""

    throttle_time_ms: Int32 = 0
    responses: tuple[DeletableTopicResult, ...]


class CreatePartitionsAssignment(Struct, frozen=True, kw_only=True):
    """The brokers of one new partition."""

    broker_ids: tuple[Int32, ...]


class CreatePartitionsTopic(Struct, frozen=True, kw_only=True):
    """A topic and its new number of partitions."""

    name: String
    count: Int32
    assignments: tuple[CreatePartitionsAssignment, ...] | None


@message(api_key=37, versions=(0, 3), flexible_since=2)
class CreatePartitionsRequest(Request["CreatePartitionsResponse"], frozen=True, kw_only=True):
    """Add partitions to topics (KIP-195)."""

    topics: tuple[CreatePartitionsTopic, ...]
    timeout_ms: Int32
    validate_only: Bool


class CreatePartitionsTopicResult(Struct, frozen=True, kw_only=True):
    """The result for one topic."""

    name: String
    error_code: Int16
    error_message: NullableString = None


@message(api_key=37, versions=(0, 3), flexible_since=2)
class CreatePartitionsResponse(Message, frozen=True, kw_only=True):
    """The result for each topic."""

    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...]
