"""The coordinator's `uniform`: even loads, and target assignments that change little (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kohort.group.assignors.interface import ClusterView
from kohort.group.assignors.problem import build, by_member, solve
from kohort.group.assignors.racks import RackedClusterView
from kohort.group.assignors.server import (
    MemberSubscription,
    PartitionRacks,
    ServerAssignor,
    as_subscriptions,
)
from kohort.types import TopicPartition


class UniformAssignor(ServerAssignor):
    """Kafka's `uniform`, but optimal for any subscriptions (A4).

    Attributes:
        rack_aware: Whether, among equally even results with equally few moves, it chooses one with
            the most partitions in the racks of their members.
    """

    name: ClassVar[str] = "uniform"

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
        problem = build(cluster, as_subscriptions(members))
        lists = by_member(problem, solve(problem))
        return {member: frozenset(owned) for member, owned in lists.items()}
