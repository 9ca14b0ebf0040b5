"""Deletion of the first records of partitions (KIP-107), by their leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kohort.client.admin.errors import check_results, error_of
from kohort.client.consumer.commits.offsets import shown
from kohort.client.net.backoff import Backoff, Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.net.metadata import ClusterMetadata
from kohort.errors import (
    MAY_BE_HIDDEN,
    BrokerUnavailableError,
    ErrorCode,
    KafkaError,
    RemoteProtocolError,
)
from kohort.types import TopicPartition
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

Results = dict[TopicPartition, int | KafkaError]

# Metadata was stale, or a leader election is running. Missing topics are not waited for.
_PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Delete the records before an offset of each partition; return the new start offsets.

    Args:
        cluster: The brokers.
        offsets: The first offset to keep, by partition; -1 is the end.
        deadline: When to give up.

    Raises:
        PartialFailureError: Records of some partitions could not be deleted.
    """
    results: Results = {}
    left = dict(offsets)
    pause = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)
    while left:
        try:
            metadata = await cluster.describe({each.topic for each in left}, deadline)
        except KafkaError as error:
            results.update({where: results.get(where, error) for where in left})
            break
        results.update(await _try(cluster, metadata, left, deadline))
        left = {where: offset for where, offset in left.items() if _passes(results[where])}
        if deadline.over:
            break
        if left:
            await cluster.sleep(pause, deadline)
    return check_results(results)


def _passes(result: int | KafkaError) -> bool:
    return isinstance(result, KafkaError) and result.code in _PASSING


async def _try(
    cluster: Cluster,
    metadata: ClusterMetadata,
    offsets: Mapping[TopicPartition, int],
    deadline: Deadline,
) -> Results:
    results: Results = {}
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for where, offset in offsets.items():
        known = metadata.partition(where)
        leader = metadata.leader(where)
        if known is None:
            known_topic = metadata.topics.get(where.topic)
            is_there = known_topic is not None and known_topic.partitions
            why = "" if is_there else f": the topic does not exist, {MAY_BE_HIDDEN}"
            text = shown(where) + why
            results[where] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        elif leader is None:
            results[where] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, shown(where))
        else:
            by_leader.setdefault(leader, {})[where] = offset
    for answered in await asyncio.gather(
        *(_ask(cluster, node, part, deadline) for node, part in by_leader.items())
    ):
        results.update(answered)
    return results


async def _ask(
    cluster: Cluster, node: int, offsets: Mapping[TopicPartition, int], deadline: Deadline
) -> Results:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for (topic, number), offset in offsets.items():
        entry = DeleteRecordsPartition(partition_index=number, offset=offset)
        topics.setdefault(topic, []).append(entry)
    timeout_ms = max(1, deadline.left_ms(cluster.config.request_timeout_ms))
    request = DeleteRecordsRequest(
        topics=tuple(
            DeleteRecordsTopic(name=name, partitions=tuple(entries))
            for name, entries in topics.items()
        ),
        timeout_ms=timeout_ms,
    )
    try:
        response = await cluster.send(node, request, timeout_ms=timeout_ms)
    except KafkaError as error:
        return dict.fromkeys(offsets, error)
    except RemoteProtocolError as error:  # like a lost connection
        return dict.fromkeys(offsets, BrokerUnavailableError(str(error)))
    answered = {
        TopicPartition(topic.name, entry.partition_index): entry
        for topic in response.topics
        for entry in topic.partitions
    }
    return {where: _result(where, answered.get(where)) for where in offsets}


def _result(where: TopicPartition, entry: DeleteRecordsPartitionResult | None) -> int | KafkaError:
    if entry is None:
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{shown(where)}: missing from the answer"
        )
    error = error_of(entry.error_code, shown(where), None, needs="DELETE")
    return entry.low_watermark if error is None else error
