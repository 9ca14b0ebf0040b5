"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from collections import Counter

from kohort.broker.context import BrokerContext, Caller
from kohort.broker.log.partition_log import LEADER_EPOCH, PartitionLog
from kohort.errors import ErrorCode, KafkaError
from kohort.wire.codec.schema import EVERY_VERSION
from kohort.wire.messages.leader_epochs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
# KIP-1005 and KIP-1023: offsets in tiered storage, or waiting for upload. There is none here.
LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -5, -6
# The request version that introduced each of these; other negative numbers are invalid.
_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NO_EPOCH = -1
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
"""Read uncommitted and read committed; Kafka rejects any other number."""


def list_offsets(
    broker: BrokerContext, request: ListOffsetsRequest, caller: Caller
) -> ListOffsetsResponse:
    """Find the offset for each partition and timestamp."""
    topics = (
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=_partitions(broker, request, topic, caller.version),
        )
        for topic in request.topics
    )
    return ListOffsetsResponse(topics=tuple(topics))


def _partitions(
    broker: BrokerContext, request: ListOffsetsRequest, topic: ListOffsetsTopic, version: int
) -> tuple[ListOffsetsPartitionResponse, ...]:
    if request.isolation_level not in ISOLATION_LEVELS:
        return tuple(_failed(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in topic.partitions)
    times = Counter(each.partition_index for each in topic.partitions)
    by_number = {each.partition_index: each for each in topic.partitions}
    return tuple(
        _one(broker, topic.name, each, version, request.isolation_level == READ_COMMITTED)
        if times[number] == 1
        else _failed(each, ErrorCode.INVALID_REQUEST)
        for number, each in by_number.items()
    )


def _one(
    broker: BrokerContext,
    topic: str,
    wanted: ListOffsetsPartition,
    version: int,
    committed: bool,
) -> ListOffsetsPartitionResponse:
    try:
        if wanted.timestamp < 0 and version < _SINCE.get(wanted.timestamp, EVERY_VERSION):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {wanted.timestamp}")
        log = _log(broker, topic, wanted.partition_index, wanted.current_leader_epoch)
        offset, timestamp = _find(log, wanted.timestamp)
        if committed:
            offset, timestamp = _committed(log, wanted.timestamp, offset, timestamp)
    except KafkaError as error:
        return _failed(wanted, error.code)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=LEADER_EPOCH if offset >= 0 and version >= 4 else -1,
    )


def _failed(wanted: ListOffsetsPartition, code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


def _find(log: PartitionLog, timestamp: int) -> tuple[int, int]:
    if timestamp == LATEST:
        return log.log_end_offset, -1
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1
    if timestamp == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp() or (-1, -1)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1
    return log.offset_for_timestamp(timestamp) or (-1, -1)


def _committed(log: PartitionLog, wanted: int, offset: int, timestamp: int) -> tuple[int, int]:
    """Return an offset as a reader of committed records sees it: at most the last stable one."""
    if wanted == LATEST:
        return log.last_stable_offset, timestamp
    is_found = wanted >= 0 or wanted == MAX_TIMESTAMP
    return (-1, -1) if is_found and offset >= log.last_stable_offset else (offset, timestamp)


def _log(broker: BrokerContext, name: str, number: int, known_epoch: int) -> PartitionLog:
    """Return a partition's log, if the client has the right leader epoch (KIP-320)."""
    log = broker.log(name, number)
    if known_epoch > LEADER_EPOCH:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if known_epoch not in (LEADER_EPOCH, _NO_EPOCH):
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    return log


def offset_for_leader_epoch(
    broker: BrokerContext, request: OffsetForLeaderEpochRequest, _caller: Caller
) -> OffsetForLeaderEpochResponse:
    """Return the end offset of an epoch (KIP-320): the only epoch ends at the end of the log."""
    topics = tuple(
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(_end(broker, topic.topic, wanted) for wanted in topic.partitions),
        )
        for topic in request.topics
    )
    return OffsetForLeaderEpochResponse(topics=topics)


def _end(broker: BrokerContext, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        log = _log(broker, topic, wanted.partition, wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(
            error_code=error.code, partition=wanted.partition, leader_epoch=-1, end_offset=-1
        )
    known = wanted.leader_epoch == LEADER_EPOCH
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=wanted.partition,
        leader_epoch=LEADER_EPOCH if known else -1,
        end_offset=log.log_end_offset if known else -1,
    )
