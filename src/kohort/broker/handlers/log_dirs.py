"""DescribeLogDirs and AlterReplicaLogDirs: all logs are in one directory (KIP-113)."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping

from kohort.broker.context import BrokerContext, Caller
from kohort.errors import ErrorCode, KafkaError
from kohort.types import TopicPartition
from kohort.wire.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def describe_log_dirs(
    broker: BrokerContext, request: DescribeLogDirsRequest, _caller: Caller
) -> DescribeLogDirsResponse:
    """Return the sizes of partitions on disk, and that of the disk."""
    data = broker.data
    asked: dict[str, set[int]]
    if request.topics is None:
        asked = {name: {*range(topic.partitions)} for name, topic in data.topics.items()}
    else:
        asked = defaultdict(set)
        for each in request.topics:
            asked[each.topic].update(each.partitions)
    try:
        with data.storage.reading(data.path):
            result = _described(broker, asked)
    except KafkaError as error:
        result = DescribeLogDirsResult(error_code=error.code, log_dir=str(data.path), topics=())
    return DescribeLogDirsResponse(results=(result,))


def _described(broker: BrokerContext, asked: Mapping[str, Iterable[int]]) -> DescribeLogDirsResult:
    topics = (_topic(broker, name, sorted(numbers)) for name, numbers in asked.items())
    volume = shutil.disk_usage(broker.data.path)
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=str(broker.data.path),
        topics=tuple(topic for topic in topics if topic.partitions),
        total_bytes=volume.total,
        usable_bytes=volume.free,
    )


def _topic(broker: BrokerContext, name: str, numbers: Iterable[int]) -> DescribeLogDirsTopic:
    """Describe the partitions that exist, and leave out others as Kafka does."""
    partitions = (TopicPartition(name, number) for number in numbers)
    sizes = (
        DescribeLogDirsPartition(
            partition_index=each.partition,
            partition_size=broker.data.size_on_disk(each),
            offset_lag=0,
            is_future_key=False,
        )
        for each in partitions
        if broker.has(each)
    )
    return DescribeLogDirsTopic(name=name, partitions=tuple(sizes))


def alter_replica_log_dirs(
    broker: BrokerContext, request: AlterReplicaLogDirsRequest, _caller: Caller
) -> AlterReplicaLogDirsResponse:
    """Accept the current directory, and reject any other."""
    topics = (
        AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=tuple(
                AlterReplicaLogDirPartitionResult(
                    partition_index=number,
                    error_code=_moved(broker, TopicPartition(topic.name, number), directory.path),
                )
                for number in topic.partitions
            ),
        )
        for directory in request.dirs
        for topic in directory.topics
    )
    return AlterReplicaLogDirsResponse(results=tuple(topics))


def _moved(broker: BrokerContext, partition: TopicPartition, target: str) -> ErrorCode:
    if target != str(broker.data.path):
        return ErrorCode.LOG_DIR_NOT_FOUND
    return ErrorCode.NONE if broker.has(partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
