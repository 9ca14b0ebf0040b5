"""Decodes classic members' subscriptions and assignments for a consumer group: topics by id."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from immutables import Map

from kohort.errors import RemoteProtocolError
from kohort.group.coordinator.consumer.state.group import Owned
from kohort.group.coordinator.topics import TopicsImage
from kohort.wire import consumer_protocol
from kohort.wire.messages.consumer_group_records import ClassicMemberMetadata
from kohort.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartitions,
)

Partitions = dict[uuid.UUID, tuple[int, ...]]


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription:
    """Read a subscription.

    Raises:
        RemoteProtocolError: The bytes are not a subscription.
    """
    return consumer_protocol.decode_subscription(metadata)


def by_id(entries: Iterable[ConsumerProtocolTopicPartitions], topics: TopicsImage) -> Partitions:
    """Return partitions by topic id; topics that do not exist are left out."""
    found: Partitions = {}
    for entry in entries:
        view = topics.by_name.get(entry.topic)
        if view is not None:
            found[view.topic_id] = (*found.get(view.topic_id, ()), *entry.partitions)
    return found


def assignment_of(data: bytes, topics: TopicsImage, epoch: int) -> Owned:
    """Read a classic member's assignment, with an epoch; empty bytes are an empty assignment.

    Raises:
        RemoteProtocolError: The bytes are not an assignment, or contain user data of a custom
            assignor, which would be lost (K41).
    """
    if not data:
        return Map()
    assignment = consumer_protocol.decode_assignment(data)
    if assignment.user_data:
        raise RemoteProtocolError("the assignment has user data, of an assignor of its own")
    given = by_id(assignment.assigned_partitions, topics)
    return Map({topic_id: Map(dict.fromkeys(given[topic_id], epoch)) for topic_id in given})


def assignment_bytes(
    partitions: Mapping[uuid.UUID, Iterable[int]], topics: TopicsImage, metadata: bytes
) -> bytes:
    """Encode an assignment in the version of the member's subscription (K45)."""
    named = sorted(
        (topics.names[topic_id], tuple(sorted(partitions[topic_id])))
        for topic_id in partitions
        if topic_id in topics.names
    )
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            ConsumerProtocolTopicPartitions(topic=name, partitions=numbers)
            for name, numbers in named
        ),
        user_data=None,
    )
    version = consumer_protocol.version_of(metadata)
    highest = ConsumerProtocolAssignment.max_version
    return consumer_protocol.encode_assignment(assignment, min(version, highest))


def first_metadata(classic: ClassicMemberMetadata) -> bytes:
    """Return a member's subscription for its first assignor, the same as for all its assignors."""
    return classic.supported_protocols[0].metadata
