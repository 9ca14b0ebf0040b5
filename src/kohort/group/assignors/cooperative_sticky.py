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

    A moving partition has no owner after the first rebalance: its old owner releases it and
    rejoins, and the second rebalance gives it to its new owner (L24).
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
        """Settle claims (KIP-792), and return the partitions that each member may take at once."""
        problem = build(cluster, subscriptions)
        assigned = solve(problem)
        withhold(problem.owner, problem.claimed, assigned)
        return by_member(problem, assigned)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002 - the same for all
        """Return the generation, for leaders that read it only from user data (L22)."""
        return struct.pack(">i", self._generation)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:  # noqa: ARG002 - subscriptions carry it
        """Remember the generation."""
        self._generation = metadata.generation_id
