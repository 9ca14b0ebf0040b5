"""The interface of an assignor: one class, one required method, a few optional ones.

class Mine(Assignor):
    name = "mine"

    def assign(self, cluster, subscriptions):
        return {member: [...] for member in subscriptions}

An assignor whose members keep their partitions during a rebalance (KIP-429) declares that in
`supported_protocols`; it must not give a partition to one member while another one still owns it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import ClassVar

from msgspec import Struct

from kohort.group.subscription import PROTOCOL_TYPE, Subscription
from kohort.types import TopicPartition


class RebalanceProtocol(Enum):
    """The way in which members give partitions up (KIP-429)."""

    EAGER = "all of them before every rebalance"
    COOPERATIVE = "only those that move"


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol | None:
    """Return the highest protocol that all assignors support (L1), None if there is none."""
    common = set(RebalanceProtocol).intersection(*(each.supported_protocols for each in assignors))
    if RebalanceProtocol.COOPERATIVE in common:
        return RebalanceProtocol.COOPERATIVE
    return RebalanceProtocol.EAGER if common else None


class Assignment(Struct, frozen=True):
    """The assignment of one member.

    Attributes:
        partitions: All its partitions.
        user_data: Data from the leader's assignor for this member's assignor.
    """

    partitions: frozenset[TopicPartition]
    user_data: bytes | None = None


class GroupMetadata(Struct, frozen=True, kw_only=True):
    """The identity of a member (KIP-447).

    Attributes:
        group_id: Its group.
        generation_id: The generation it is in.
        member_id: Its id in the group.
        group_instance_id: Its static id (KIP-345), None for a dynamic member.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class ClusterView(Struct, frozen=True):
    """The cluster as an assignor sees it.

    Attributes:
        partitions: Number of partitions of each topic that exists.
    """

    partitions: Mapping[str, int]


class Assignor(ABC):
    """Assigns the partitions of a group to its members.

    Attributes:
        name: Name that the members of a group agree on.
        version: Version of its user data; newer versions must read the data of older ones.
        supported_protocols: How its members may give partitions up; a member uses the highest that
            all its assignors support.
        protocol_type: Protocol type of its classic groups. Kafka's tools show members and lags only
            for the type "consumer", and a group can change its type only while it is empty.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 0
    supported_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)
    protocol_type: str = PROTOCOL_TYPE

    @abstractmethod
    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Return the partitions of each member; the group's leader calls it.

        Args:
            cluster: The topics that exist.
            subscriptions: The subscription of each member, by member id.
        """

    def assign_with_user_data(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Return each member's assignment, with user data for its assignor; override to send some.

        Args:
            cluster: As for `assign`.
            subscriptions: As for `assign`.
        """
        partitions = self.assign(cluster, subscriptions)
        return {member: Assignment(frozenset(each)) for member, each in partitions.items()}

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002 - most have no user data
        """Return data for the leader about this member, beyond its topics."""
        return None

    def on_assignment(  # noqa: B027 - most assignors are stateless
        self, assignment: Assignment, metadata: GroupMetadata
    ) -> None:
        """Store the partitions assigned to this member.

        Called between the listener's calls for revoked and for added partitions.

        Args:
            assignment: All its partitions, and the data from the leader's assignor.
            metadata: The member's identity in this generation.
        """

    def lent(self) -> frozenset[TopicPartition]:
        """Return the partitions that this member gives up before it rejoins, though cooperative.

        Called after `on_assignment`; holds until the next assignment. The leader of the next
        rebalance may give it to any member, this one included.
        """
        return frozenset()


def java_sorted(texts: Iterable[str]) -> list[str]:
    """Return strings as Java sorts them, by UTF-16 units.

    All members of a group, including Java clients, must sort alike.
    """
    known = list(texts)
    # The order usually equals Python's, and sorting without a key is faster.
    return sorted(known) if all(map(str.isascii, known)) else sorted(known, key=_java_order)


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def member_order(
    subscriptions: Mapping[str, Subscription],
) -> list[str]:
    """Return the member ids with static members first, by instance id, then the others (A1)."""
    dynamic: list[str] = []
    static: list[tuple[bytes, str]] = []
    for member_id, entry in subscriptions.items():
        if entry.group_instance_id is None:
            dynamic.append(member_id)
        else:
            static.append((_java_order(entry.group_instance_id), member_id))
    return [*(member_id for _, member_id in sorted(static)), *java_sorted(dynamic)]


def subscribed_topics(cluster: ClusterView, subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Return the existing topics with a subscriber, in order."""
    topics = {topic for entry in subscriptions.values() for topic in entry.topics}
    return java_sorted(topic for topic in topics if cluster.partitions.get(topic))
