"""Queries for offsets: from leaders (start and end of partitions) and coordinators (commits)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping

from msgspec import Struct

from kohort.client.net.backoff import Deadline, may_pass
from kohort.client.net.cluster import Cluster
from kohort.client.net.coordinator import Coordinator
from kohort.errors import ErrorCode, KafkaError, KohortError, PartialFailureError, with_right
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_CONSUMER = -1
# How many partitions an error names.
_SHOWN = 5


class OffsetAndTimestamp(Struct, frozen=True):
    """The offset of a timestamp in a partition.

    Attributes:
        offset: The first record at or after the timestamp; -1 when there is none.
        timestamp: Timestamp of that record, in milliseconds; -1 for the start or end.
        leader_epoch: Leader epoch of that record, -1 when not known.
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


async def list_offsets(
    cluster: Cluster,
    targets: Mapping[TopicPartition, int],
    deadline: Deadline,
    *,
    read_committed: bool = False,
    found: dict[TopicPartition, OffsetAndTimestamp] | None = None,
    missing_ms: int | None = None,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Ask the leaders for the offsets of timestamps.

    Args:
        cluster: The brokers.
        targets: A timestamp in milliseconds per partition; -1 for the end, -2 for the start.
        deadline: When to give up.
        read_committed: Whether the end is the end of committed records.
        found: Receives the offsets, so that a caller keeps them even if others fail.
        missing_ms: How long to wait for missing partitions when nothing else is pending; None for
            the whole time.

    Raises:
        KafkaError: A partition does not exist, or there was no answer in time.
    """
    news = cluster.unwatched(partition.topic for partition in targets)
    what = f"the offsets of {', '.join(map(shown, itertools.islice(targets, _SHOWN)))}"
    try:
        async with cluster.within(deadline, what):
            found = {} if found is None else found
            await _find(cluster, targets, deadline, read_committed, found, missing_ms)
            return found
    except BaseException:
        cluster.forget_topics(news)
        raise


async def _find(
    cluster: Cluster,
    targets: Mapping[TopicPartition, int],
    deadline: Deadline,
    read_committed: bool,
    found: dict[TopicPartition, OffsetAndTimestamp],
    missing_ms: int | None,
) -> None:
    left = dict(targets)
    pause = cluster.retry_backoff()
    patience: Deadline | None = None
    while left:
        more, error = await try_list_offsets(cluster, left, deadline, read_committed=read_committed)
        found.update(more)
        left = {partition: left[partition] for partition in left if partition not in found}
        if error is not None:
            if not isinstance(error, KohortError):
                raise error
            if missing_ms is None or not all(is_missing(cluster, each) for each in left):
                patience = None
            elif patience is None:  # it may be newly created
                patience = Deadline(missing_ms)
            elif patience.over:
                raise error
            await cluster.wait_after(error, pause, deadline)
            await cluster.refresh(deadline)


async def try_list_offsets(
    cluster: Cluster,
    targets: Mapping[TopicPartition, int],
    deadline: Deadline,
    *,
    read_committed: bool = False,
) -> tuple[dict[TopicPartition, OffsetAndTimestamp], BaseException | None]:
    """Ask the leaders once: return their answers, and the most serious error for missing ones.

    Args:
        cluster: The brokers.
        targets: See `list_offsets`.
        deadline: When to give up looking for the leaders.
        read_committed: See `list_offsets`.

    Raises:
        BrokerUnavailableError: No broker named the leaders.
    """
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    await cluster.ensure_topics({partition.topic for partition in targets}, deadline)
    by_leader = _by_leader(cluster, targets)
    results = await asyncio.gather(
        *(_ask(cluster, node, part, read_committed) for node, part in by_leader.items()),
        return_exceptions=True,
    )
    error = _collect(results, found)
    lacking = [partition for partition in targets if partition not in found]
    return found, (error or missing_error(cluster, lacking[0])) if lacking else None


def _by_leader(
    cluster: Cluster, targets: Mapping[TopicPartition, int]
) -> dict[int, dict[TopicPartition, int]]:
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for partition, target in targets.items():
        leader = cluster.metadata.leader(partition)
        if leader is not None:
            by_leader.setdefault(leader, {})[partition] = target
    return by_leader


async def _ask(
    cluster: Cluster, node_id: int, targets: Mapping[TopicPartition, int], read_committed: bool
) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, timestamp in targets.items():
        known = cluster.metadata.partition(partition)
        entry = ListOffsetsPartition(
            partition_index=partition.partition,
            current_leader_epoch=known.leader_epoch if known else -1,
            timestamp=timestamp,
        )
        topics.setdefault(partition.topic, []).append(entry)
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(read_committed),
        topics=tuple(
            ListOffsetsTopic(name=name, partitions=tuple(entries))
            for name, entries in topics.items()
        ),
        timeout_ms=cluster.config.request_timeout_ms,
    )
    response = await cluster.send(node_id, request)
    return {
        TopicPartition(topic.name, entry.partition_index): entry
        for topic in response.topics
        for entry in topic.partitions
    }


def _collect(
    results: Iterable[dict[TopicPartition, ListOffsetsPartitionResponse] | BaseException],
    found: dict[TopicPartition, OffsetAndTimestamp],
) -> BaseException | None:
    """Put good answers into `found`; return the most serious error."""
    errors: list[BaseException] = []
    for result in results:
        if isinstance(result, BaseException):
            errors.append(result)
            continue
        for partition, entry in result.items():
            if entry.error_code:
                text = with_right(entry.error_code, shown(partition), "DESCRIBE")
                errors.append(KafkaError(entry.error_code, text))
            else:
                found[partition] = OffsetAndTimestamp(
                    entry.offset, entry.timestamp, entry.leader_epoch
                )
    grave = [each for each in errors if not may_pass(each)]
    return next(iter(grave or errors), None)


def is_missing(cluster: Cluster, partition: TopicPartition) -> bool:
    """Whether the brokers say that the topic or the partition does not exist."""
    return missing_error(cluster, partition).code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def missing_error(cluster: Cluster, partition: TopicPartition) -> KafkaError:
    """Return why the metadata has no leader for a partition."""
    topic = cluster.metadata.topics.get(partition.topic)
    if topic is None or partition.partition not in topic.partitions:
        code = topic.error_code if topic else 0
        text = shown(partition)
        if topic is not None and not code:
            text += f"; topic {topic.name} has {len(topic.partitions)} partitions"
        text = with_right(code, text, "DESCRIBE")
        return KafkaError(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, shown(partition))


async def fetch_committed(
    coordinator: Coordinator,
    partitions: Iterable[TopicPartition] | None,
    deadline: Deadline,
    *,
    member_id: str | None = None,
    generation: int = -1,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Ask for a group's committed offsets; partitions without one are left out.

    Args:
        coordinator: The group's coordinator.
        partitions: The partitions; None for all.
        deadline: When to give up.
        member_id: The member that asks (KIP-848); None for no member.
        generation: Its generation or epoch.

    Raises:
        KafkaError: The coordinator refuses or does not answer in time.
        PartialFailureError: The coordinator refuses some partitions.
    """
    group = OffsetFetchRequestGroup(
        group_id=coordinator.group_id,
        member_id=member_id,
        member_epoch=generation,
        topics=None if partitions is None else _topics(partitions),
    )
    request = OffsetFetchRequest(groups=(group,), require_stable=True)
    response = await coordinator.call(request, _codes, deadline)
    what = f"offsets of group {coordinator.group_id}"
    for answer in response.groups:
        if answer.error_code:
            text = with_right(answer.error_code, what, "DESCRIBE")
            raise KafkaError(answer.error_code, text)
    entries = {
        TopicPartition(topic.name, entry.partition_index): entry
        for answer in response.groups
        for topic in answer.topics
        for entry in topic.partitions
    }
    errors: dict[object, KafkaError] = {
        where: KafkaError(entry.error_code, f"{what}: {shown(where)}")
        for where, entry in entries.items()
        if entry.error_code
    }
    found = {
        where: OffsetAndMetadata(
            entry.committed_offset, entry.metadata or "", entry.committed_leader_epoch
        )
        for where, entry in entries.items()
        if entry.committed_offset >= 0 and where not in errors
    }
    if errors:
        raise PartialFailureError(errors, dict[object, object](found))
    return found


def _topics(partitions: Iterable[TopicPartition]) -> tuple[OffsetFetchRequestTopics, ...]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return tuple(
        OffsetFetchRequestTopics(name=name, partition_indexes=tuple(numbers))
        for name, numbers in topics.items()
    )


def _codes(response: OffsetFetchResponse) -> list[int]:
    codes = [group.error_code for group in response.groups]
    codes += [
        entry.error_code
        for group in response.groups
        for topic in group.topics
        for entry in topic.partitions
    ]
    return codes


def shown(partition: TopicPartition) -> str:
    """Return a partition's name as Kafka's tools show it."""
    return f"{partition.topic}-{partition.partition}"
