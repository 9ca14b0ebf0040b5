"""What an assignor is: one class, one method that must be written, a few that may be.

class Mine(Assignor):
    name = "mine"

    def assign(self, cluster, subscriptions):
        return {member: [...] for member in subscriptions}
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from kohort.group.subscription import Subscription
from kohort.types import TopicPartition


class RebalanceProtocol(Enum):
    """How members give partitions up (KIP-429)."""

    EAGER = "all of them before every rebalance"
    COOPERATIVE = "only those that move"


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What an assignor sees of the cluster.

    Attributes:
        partitions: Number of partitions of each topic that exists.
    """

    partitions: Mapping[str, int]


class Assignor(ABC):
    """Shares the partitions of a group out among its members.

    Attributes:
        name: Name that the members of a group agree on.
        version: Version of its user data.
        supported_protocols: How its members may give partitions up.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 0
    supported_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    @abstractmethod
    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Return the partitions of each member; runs at the member that leads the group.

        Args:
            cluster: The topics that exist.
            subscriptions: What each member wants, by member id.
        """

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002 - most have nothing to say
        """Return what the leader should know of this member beyond its topics."""
        return None

    def on_assignment(  # noqa: B027 - most assignors remember nothing
        self, partitions: frozenset[TopicPartition], generation: int
    ) -> None:
        """Take note of what this member was given, before its listener is told."""


def java_order(text: str) -> bytes:
    """Return a key that sorts strings as Java does, by UTF-16 units.

    All members must sort alike, also where the other ones are Java clients.
    """
    return text.encode("utf-16-be", "surrogatepass")


def member_order(
    subscriptions: Mapping[str, Subscription],
) -> list[str]:
    """Return the member ids with static members first, by instance id, then the others (A1)."""

    def key(member_id: str) -> tuple[bool, bytes]:
        instance = subscriptions[member_id].group_instance_id
        return instance is None, java_order(member_id if instance is None else instance)

    return sorted(subscriptions, key=key)


def subscribed_topics(cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Return the topics that somebody subscribes to and that exist, in order."""
    topics = {topic for entry in subscriptions.values() for topic in entry.topics}
    return sorted((topic for topic in topics if cluster.partitions.get(topic)), key=java_order)
