"""AlterReplicaLogDirs and DescribeLogDirs: where replicas are kept (KIP-113)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.schema import (
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
    struct,
)


@struct
class AlterReplicaLogDirTopic(Struct):
    """The partitions of one topic."""

    name: String
    partitions: tuple[Int32, ...]


@struct
class AlterReplicaLogDir(Struct):
    """A directory, and what shall be kept there."""

    path: String
    topics: tuple[AlterReplicaLogDirTopic, ...]


@message(api_key=34, versions=(1, 2), flexible_since=2)
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    """Move replicas from one directory of a broker to another."""

    dirs: tuple[AlterReplicaLogDir, ...]


@struct
class AlterReplicaLogDirPartitionResult(Struct):
    """What became of one partition."""

    partition_index: Int32
    error_code: Int16


@struct
class AlterReplicaLogDirTopicResult(Struct):
    """What became of the partitions of one topic."""

    topic_name: String
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...]


@message(api_key=34, versions=(1, 2), flexible_since=2)
class AlterReplicaLogDirsResponse(Message):
    """What became of each."""

    throttle_time_ms: Int32 = 0
    results: tuple[AlterReplicaLogDirTopicResult, ...]


@struct
class DescribableLogDirTopic(Struct):
    """The partitions of one topic that are asked about."""

    topic: String
    partitions: tuple[Int32, ...]


@message(api_key=35, versions=(1, 5), flexible_since=2)
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    """Ask where a broker keeps partitions, and how large they are; null means all."""

    topics: tuple[DescribableLogDirTopic, ...] | None


@struct
class DescribeLogDirsPartition(Struct):
    """Size of one partition in bytes."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@struct
class DescribeLogDirsTopic(Struct):
    """The partitions of one topic."""

    name: String
    partitions: tuple[DescribeLogDirsPartition, ...]


@struct
class DescribeLogDirsResult(Struct):
    """What is in one directory, and how large its volume is."""

    error_code: Int16
    log_dir: String
    topics: tuple[DescribeLogDirsTopic, ...]
    total_bytes: Annotated[Int64, since(4), IGNORABLE] = -1
    usable_bytes: Annotated[Int64, since(4), IGNORABLE] = -1
    is_cordoned: Annotated[Bool, since(5), IGNORABLE] = False


@message(api_key=35, versions=(1, 5), flexible_since=2)
class DescribeLogDirsResponse(Message):
    """What is in each directory."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3), IGNORABLE] = 0
    results: tuple[DescribeLogDirsResult, ...]
