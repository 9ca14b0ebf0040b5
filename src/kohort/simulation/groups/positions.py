"""Applications' requests for positions, and their answers."""

from __future__ import annotations

from kohort.errors import KafkaError
from kohort.simulation.groups.base import BaseClient
from kohort.types import TopicPartition
from kohort.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)


def request(client: BaseClient, wanted: list[TopicPartition]) -> OffsetFetchRequest:
    """Return the request for committed offsets, with the member if the protocol needs it."""
    topics: dict[str, list[int]] = {}
    for partition in wanted:
        topics.setdefault(partition.topic, []).append(partition.partition)
    identity = client.machine.identity
    asks_as_member = client.protocol.has_epochs and identity.generation >= 0
    group = OffsetFetchRequestGroup(
        group_id=client.machine.config.group_id,
        member_id=identity.member_id if asks_as_member else None,
        member_epoch=identity.generation if asks_as_member else -1,
        topics=tuple(
            OffsetFetchRequestTopics(name=name, partition_indexes=tuple(numbers))
            for name, numbers in topics.items()
        ),
    )
    return OffsetFetchRequest(groups=(group,))


def found_in(
    response: OffsetFetchResponse | None, wanted: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the committed offsets in an answer, without entries that have an error."""
    if response is None:
        return {}
    found: dict[TopicPartition, int] = {}
    for group in response.groups:
        if group.error_code:
            continue
        for topic in group.topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                if not entry.error_code and partition in wanted:
                    found[partition] = entry.committed_offset
    return found


def error_of(response: OffsetCommitResponse) -> int:
    """Return the error to react to: permanent errors before temporary ones."""
    codes = [entry.error_code for topic in response.topics for entry in topic.partitions]
    errors = [code for code in codes if code]
    lasting = [code for code in errors if not KafkaError(code).retriable]
    return next(iter(lasting or errors), 0)
