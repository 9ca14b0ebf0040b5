"""What the coordinator asks of an assignor of its own (KIP-848)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from kohort.group.subscription import Subscription
from kohort.types import TopicPartition

PartitionRacks = Mapping[str, Sequence[frozenset[str]]]


class MemberSubscription(Struct, frozen=True, kw_only=True):
    """What the coordinator knows of a member when it makes a target assignment.

    Attributes:
        topics: The topics it subscribes to, by name or by id, a regex already resolved.
        owned: Its present target assignment, by the same names; it keeps of it what it can.
        instance_id: Its static id (KIP-345), None for a dynamic member.
        rack_id: Where it runs, None when not said.
    """

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    instance_id: str | None = None
    rack_id: str | None = None


class ServerAssignor(ABC):
    """Makes the target assignment of a group; pure, so it may run as a job in any thread.

    Attributes:
        name: What members ask for in ConsumerGroupHeartbeat and `group.remote.assignor`.
    """

    name: ClassVar[str]

    @abstractmethod
    def assign(
        self,
        members: Mapping[str, MemberSubscription],
        partitions: Mapping[str, int],
        racks: PartitionRacks | None = None,
    ) -> Mapping[str, frozenset[TopicPartition]]:
        """Return the partitions of each member, also of those that get none.

        Args:
            members: What each member wants and has, by member id.
            partitions: Number of partitions of each topic that exists; other topics are passed
                over, as Kafka's coordinator does before it asks.
            racks: For each topic the racks of the replicas of each partition. Kafka's assignors do
                not look at them (KAFKA-16694); ours do when made with `rack_aware=True`.
        """


def as_subscriptions(members: Mapping[str, MemberSubscription]) -> dict[str, Subscription]:
    """Return the members as a leader sees them, for rules that are the same at both places."""
    return {
        member_id: Subscription(
            topics=member.topics,
            owned=member.owned,
            rack_id=member.rack_id,
            group_instance_id=member.instance_id,
        )
        for member_id, member in members.items()
    }
