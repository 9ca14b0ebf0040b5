"""The coordinator's `range`: ranges of consecutive partitions, topic by topic (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kohort.group.assignors.interface import ClusterView
from kohort.group.assignors.racks import RackedClusterView
from kohort.group.assignors.range import RangeAssignor
from kohort.group.assignors.server import (
    MemberSubscription,
    PartitionRacks,
    ServerAssignor,
    as_subscriptions,
)
from kohort.types import TopicPartition


class ServerRangeAssignor(ServerAssignor):
    """Kafka's server-side `range`; without racks it assigns as the client-side one does (A5).

    It ignores the members' present partitions.

    Attributes:
        rack_aware: Whether it considers racks as the client-side one does (KIP-881).
    """

    name: ClassVar[str] = "range"

    def __init__(self, *, rack_aware: bool = False) -> None:
        self.rack_aware = rack_aware

    def assign(
        self,
        members: Mapping[str, MemberSubscription],
        partitions: Mapping[str, int],
        racks: PartitionRacks | None = None,
    ) -> dict[str, frozenset[TopicPartition]]:
        """Return the partitions of each member."""
        cluster = ClusterView(partitions)
        if self.rack_aware and racks is not None:
            cluster = RackedClusterView(partitions, racks)
        lists = RangeAssignor().assign(cluster, as_subscriptions(members))
        return {member: frozenset(owned) for member, owned in lists.items()}
