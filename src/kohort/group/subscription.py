"""The consumer protocol inside JoinGroup and SyncGroup: subscriptions and assignments as values.

Versions (L20): 0 topics and user data; 1 adds owned partitions (KIP-429); 2 the generation in which
they were owned (KIP-792); 3 the rack (KIP-881). Of a newer version, the known fields are read.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kohort.types import TopicPartition
from kohort.wire import consumer_protocol
from kohort.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartitions,
)

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 3


class Subscription(Struct, frozen=True, kw_only=True):
    """The subscription of a member when it joins.

    Attributes:
        topics: The topics it subscribes to.
        owned: The partitions it owns while it joins.
        generation: The generation in which it got them, -1 for none.
        user_data: Data from its assignor for the leader.
        rack_id: The rack it runs in, None when unknown.
        group_instance_id: Its static id (KIP-345), None for a dynamic member.
    """

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Return a subscription as the metadata of one assignor in JoinGroup."""
    message = ConsumerProtocolSubscription(
        topics=tuple(sorted(subscription.topics)),
        user_data=subscription.user_data,
        owned_partitions=_by_topic(subscription.owned),
        generation_id=subscription.generation,
        rack_id=subscription.rack_id,
    )
    return consumer_protocol.encode_subscription(message, SUBSCRIPTION_VERSION)


def decode_subscription(metadata: bytes, group_instance_id: str | None = None) -> Subscription:
    """Read the metadata of a member.

    Raises:
        RemoteProtocolError: The bytes are not a subscription.
    """
    message = consumer_protocol.decode_subscription(metadata)
    return Subscription(
        topics=frozenset(message.topics),
        owned=_partitions(message.owned_partitions),
        generation=message.generation_id,
        user_data=message.user_data,
        rack_id=message.rack_id,
        group_instance_id=group_instance_id,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None
) -> bytes:
    """Return the assignment of one member as SyncGroup carries it."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=_by_topic(partitions), user_data=user_data
    )
    return consumer_protocol.encode_assignment(message, ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> tuple[frozenset[TopicPartition], bytes | None]:
    """Read an assignment: its partitions and its user data. Empty bytes are an empty assignment.

    Raises:
        RemoteProtocolError: The bytes are not an assignment.
    """
    if not data:
        return frozenset(), None
    message = consumer_protocol.decode_assignment(data)
    return _partitions(message.assigned_partitions), message.user_data


def _by_topic(
    partitions: Iterable[TopicPartition],
) -> tuple[ConsumerProtocolTopicPartitions, ...]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return tuple(
        ConsumerProtocolTopicPartitions(topic=topic, partitions=tuple(numbers))
        for topic, numbers in topics.items()
    )


def _partitions(topics: Iterable[ConsumerProtocolTopicPartitions]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(entry.topic, partition) for entry in topics for partition in entry.partitions
    )
