"""OffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of a group."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableSince,
    NullableString,
    Request,
    String,
    Struct,
    Uuid,
    between,
    message,
    since,
    until,
)


class OffsetCommitRequestPartition(Struct, frozen=True, kw_only=True):
    """The offset of one partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6), IGNORABLE] = -1
    committed_metadata: NullableString


class OffsetCommitRequestTopic(Struct, frozen=True, kw_only=True):
    """The offsets of one topic."""

    name: Annotated[String, until(9), IGNORABLE] = ""
    topic_id: Annotated[Uuid, since(10), IGNORABLE] = ZERO_UUID
    partitions: tuple[OffsetCommitRequestPartition, ...]


@message(api_key=8, versions=(2, 10), flexible_since=8)
class OffsetCommitRequest(Request["OffsetCommitResponse"], frozen=True, kw_only=True):
    """Commit offsets for a group."""

    group_id: String
    generation_id_or_member_epoch: Int32 = -1
    member_id: String
    group_instance_id: Annotated[NullableString, since(7)] = None
    retention_time_ms: Annotated[Int64, until(4), IGNORABLE] = -1
    topics: tuple[OffsetCommitRequestTopic, ...]


class OffsetCommitResponsePartition(Struct, frozen=True, kw_only=True):
    """The result for one offset."""

    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Struct, frozen=True, kw_only=True):
    """The result for one topic's offsets."""

    name: Annotated[String, until(9), IGNORABLE] = ""
    topic_id: Annotated[Uuid, since(10), IGNORABLE] = ZERO_UUID
    partitions: tuple[OffsetCommitResponsePartition, ...]


@message(api_key=8, versions=(2, 10), flexible_since=8)
class OffsetCommitResponse(Message, frozen=True, kw_only=True):
    """The result for each offset."""

    throttle_time_ms: Annotated[Int32, since(3), IGNORABLE] = 0
    topics: tuple[OffsetCommitResponseTopic, ...]


class OffsetFetchRequestTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic, up to version 7."""

    name: String
    partition_indexes: tuple[Int32, ...]


class OffsetFetchRequestTopics(Struct, frozen=True, kw_only=True):
    """The partitions of one topic, since version 8."""

    name: Annotated[String, until(9), IGNORABLE] = ""
    topic_id: Annotated[Uuid, since(10), IGNORABLE] = ZERO_UUID
    partition_indexes: tuple[Int32, ...]


class OffsetFetchRequestGroup(Struct, frozen=True, kw_only=True):
    """A group and the requested partitions."""

    group_id: String
    member_id: Annotated[NullableString, since(9), IGNORABLE] = None
    member_epoch: Annotated[Int32, since(9), IGNORABLE] = -1
    topics: tuple[OffsetFetchRequestTopics, ...] | None


@message(api_key=9, versions=(1, 10), flexible_since=6)
class OffsetFetchRequest(Request["OffsetFetchResponse"], frozen=True, kw_only=True):
    """Ask for committed offsets; null topics mean all, several groups since version 8 (KIP-709)."""

    group_id: Annotated[String, until(7)] = ""
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, until(7), NullableSince(2)] = ()
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], since(8)] = ()
    require_stable: Annotated[Bool, since(7)] = False


class OffsetFetchResponsePartition(Struct, frozen=True, kw_only=True):
    """One offset, up to version 7."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(5), IGNORABLE] = -1
    metadata: NullableString
    error_code: Int16


class OffsetFetchResponseTopic(Struct, frozen=True, kw_only=True):
    """The offsets of one topic, up to version 7."""

    name: String
    partitions: tuple[OffsetFetchResponsePartition, ...]


class OffsetFetchResponsePartitions(Struct, frozen=True, kw_only=True):
    """One offset, since version 8."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: NullableString
    error_code: Int16


class OffsetFetchResponseTopics(Struct, frozen=True, kw_only=True):
    """The offsets of one topic, since version 8."""

    name: Annotated[String, until(9), IGNORABLE] = ""
    topic_id: Annotated[Uuid, since(10), IGNORABLE] = ZERO_UUID
    partitions: tuple[OffsetFetchResponsePartitions, ...]


class OffsetFetchResponseGroup(Struct, frozen=True, kw_only=True):
    """The offsets of one group."""

    group_id: String
    topics: tuple[OffsetFetchResponseTopics, ...]
    error_code: Int16 = 0


@message(api_key=9, versions=(1, 10), flexible_since=6)
class OffsetFetchResponse(Message, frozen=True, kw_only=True):
    """The committed offsets; -1 if there is none."""

    throttle_time_ms: Annotated[Int32, since(3), IGNORABLE] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], until(7)] = ()
    error_code: Annotated[Int16, between(2, 7), IGNORABLE] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], since(8)] = ()


class OffsetDeleteRequestPartition(Struct, frozen=True, kw_only=True):
    """A partition whose offset to delete."""

    partition_index: Int32


class OffsetDeleteRequestTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[OffsetDeleteRequestPartition, ...]


@message(api_key=47, versions=(0, 0))
class OffsetDeleteRequest(Request["OffsetDeleteResponse"], frozen=True, kw_only=True):
    """Delete committed offsets of a group (KIP-496)."""

    group_id: String
    topics: tuple[OffsetDeleteRequestTopic, ...]


class OffsetDeleteResponsePartition(Struct, frozen=True, kw_only=True):
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16


class OffsetDeleteResponseTopic(Struct, frozen=True, kw_only=True):
    """The result for one topic."""

    name: String
    partitions: tuple[OffsetDeleteResponsePartition, ...]


@message(api_key=47, versions=(0, 0))
class OffsetDeleteResponse(Message, frozen=True, kw_only=True):
    """The result for each partition."""

    error_code: Int16
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...]
