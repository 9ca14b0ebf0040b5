"""DescribeTopicPartitions: topics, a page of partitions at a time (KIP-966)."""

from __future__ import annotations

from kohort.wire.codec.schema import (
    Bool,
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


class DescribeTopicPartitionsTopic(Struct, frozen=True, kw_only=True):
    """A requested topic."""

    name: String


class Cursor(Struct, frozen=True, kw_only=True):
    """The start of a page."""

    topic_name: String
    partition_index: Int32


@message(api_key=75, versions=(0, 0), flexible_since=0)
class DescribeTopicPartitionsRequest(
    Request["DescribeTopicPartitionsResponse"], frozen=True, kw_only=True
):
    """Ask for topics sorted by name; without names, for all."""

    topics: tuple[DescribeTopicPartitionsTopic, ...]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct, frozen=True, kw_only=True):
    """A partition, its leader and its replicas."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: tuple[Int32, ...]
    isr_nodes: tuple[Int32, ...]
    eligible_leader_replicas: tuple[Int32, ...] | None = None
    last_known_elr: tuple[Int32, ...] | None = None
    offline_replicas: tuple[Int32, ...]


class DescribeTopicPartitionsResponseTopic(Struct, frozen=True, kw_only=True):
    """A topic and its partitions on this page."""

    error_code: Int16
    name: NullableString
    topic_id: Uuid
    is_internal: Bool = False
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...]
    topic_authorized_operations: Int32 = -2147483648


@message(api_key=75, versions=(0, 0), flexible_since=0)
class DescribeTopicPartitionsResponse(Message, frozen=True, kw_only=True):
    """One page, and the start of the next one."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...]
    next_cursor: Cursor | None = None
