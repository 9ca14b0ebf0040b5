"""AlterReplicaLogDirs and DescribeLogDirs: the location of replicas (KIP-113)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    IGNORABLE,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    message,
    since,
)


class AlterReplicaLogDirTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[Int32, ...]


class AlterReplicaLogDir(Struct, frozen=True, kw_only=True):
    """A directory, and the replicas to keep there."""

    path: String
    topics: tuple[AlterReplicaLogDirTopic, ...]


@message(api_key=34, versions=(1, 2), flexible_since=2)
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"], frozen=True, kw_only=True):
    """Move replicas from one directory of a broker to another."""

    dirs: tuple[AlterReplicaLogDir, ...]


class AlterReplicaLogDirPartitionResult(Struct, frozen=True, kw_only=True):
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16


class AlterReplicaLogDirTopicResult(Struct, frozen=True, kw_only=True):
    """The result for the partitions of one topic."""

    topic_name: String
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...]


@message(api_key=34, versions=(1, 2), flexible_since=2)
class AlterReplicaLogDirsResponse(Message, frozen=True, kw_only=True):
    """The result for each partition."""

    throttle_time_ms: Int32 = 0
    results: tuple[AlterReplicaLogDirTopicResult, ...]


class DescribableLogDirTopic(Struct, frozen=True, kw_only=True):
    """The requested partitions of one topic."""

    topic: String
    partitions: tuple[Int32, ...]


@message(api_key=35, versions=(1, 5), flexible_since=2)
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"], frozen=True, kw_only=True):
    """Ask for the location and size of partitions on a broker; null means all."""

    topics: tuple[DescribableLogDirTopic, ...] | None


class DescribeLogDirsPartition(Struct, frozen=True, kw_only=True):
    """Size of one partition in bytes."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


class DescribeLogDirsTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    name: String
    partitions: tuple[DescribeLogDirsPartition, ...]


class DescribeLogDirsResult(Struct, frozen=True, kw_only=True):
    """The content of one directory, and the size of its volume."""

    error_code: Int16
    log_dir: String
    topics: tuple[DescribeLogDirsTopic, ...]
    total_bytes: Annotated[Int64, since(4), IGNORABLE] = -1
    usable_bytes: Annotated[Int64, since(4), IGNORABLE] = -1
    is_cordoned: Annotated[Bool, since(5), IGNORABLE] = False


@message(api_key=35, versions=(1, 5), flexible_since=2)
class DescribeLogDirsResponse(Message, frozen=True, kw_only=True):
    """The content of each directory."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3), IGNORABLE] = 0
    results: tuple[DescribeLogDirsResult, ...]
