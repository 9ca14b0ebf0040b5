"""The cooperative sticky assignor: sticky, but moving partitions are released first (KIP-429)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import ClassVar

from kohort.group.assignors._border import withhold
from kohort.group.assignors.interface import (
    Assignment,
    Assignor,
    ClusterView,
    GroupMetadata,
    RebalanceProtocol,
)
from kohort.group.assignors.problem import build, by_member, solve
from kohort.group.subscription import NO_GENERATION, Subscription
from kohort.types import TopicPartition


class CooperativeStickyAssignor(Assignor):
    """Kafka's `cooperative-sticky`, but optimal: even loads, then the fewest moves, then racks.

    A moving partition has no owner after the rebalance that takes it from its old one; its owner
    joins again without it, and the rebalance that follows gives it to the new one (L24).
    """

    name: ClassVar[str] = "cooperative-sticky"
    supported_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions each member may take at once; settle claims first (KIP-792)."""
        problem = build(cluster, subscriptions)
        assigned = solve(problem)
        withhold(problem.owner, problem.claimed, assigned)
        return by_member(problem, assigned)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002 - the same for all
        """Return the generation, for leaders without its field in the subscription (L22)."""
        return struct.pack(">i", self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:  # noqa: ARG002 - subscriptions carry it
        """Remember the generation."""
        self._generation = metadata.generation_id
