"""The interface of the coordinator's own assignors (KIP-848)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from kohort.group.subscription import Subscription
from kohort.types import TopicPartition

PartitionRacks = Mapping[str, Sequence[frozenset[str]]]


class MemberSubscription(Struct, frozen=True, kw_only=True):
    """A member, as input of a target assignment.

    Attributes:
        topics: The topics it subscribes to, by name or by id; a regex is already resolved.
        owned: Its present target assignment, with topics named alike; it keeps most of it.
        instance_id: Its static id (KIP-345), None for a dynamic member.
        rack_id: The rack it runs in, None when unknown.
    """

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    instance_id: str | None = None
    rack_id: str | None = None


class ServerAssignor(ABC):
    """Computes the target assignment of a group; pure, so it may run as a job in any thread.

    Attributes:
        name: The name that members use in ConsumerGroupHeartbeat and `group.remote.assignor`.
    """

    name: ClassVar[str]

    @abstractmethod
    def assign(
        self,
        members: Mapping[str, MemberSubscription],
        partitions: Mapping[str, int],
        racks: PartitionRacks | None = None,
    ) -> Mapping[str, frozenset[TopicPartition]]:
        """Return the partitions of each member, including members without any.

        Args:
            members: The subscription and partitions of each member, by member id.
            partitions: Number of partitions of each topic that exists; other topics are
                ignored, as by Kafka's coordinator before it calls an assignor.
            racks: For each topic the racks of the replicas of each partition. Kafka's assignors do
                not consider them (KAFKA-16694); ours do when made with `rack_aware=True`.
        """


def as_subscriptions(members: Mapping[str, MemberSubscription]) -> dict[str, Subscription]:
    """Return the members as a leader sees them, for code shared with client-side assignors."""
    return {
        member_id: Subscription(
            topics=member.topics,
            owned=member.owned,
            rack_id=member.rack_id,
            group_instance_id=member.instance_id,
        )
        for member_id, member in members.items()
    }
