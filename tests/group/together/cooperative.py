"""A small cooperative assignor, as any user could write with the available helpers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kohort.group.assignors import Assignor, ClusterView, RebalanceProtocol, validate_subscription
from kohort.group.assignors.interface import Assignment, GroupMetadata
from kohort.group.assignors.ownership import without_moving
from kohort.group.subscription import Subscription
from kohort.types import TopicPartition


class Keep(Assignor):
    """Members keep partitions up to their share; the others go to the members with the fewest."""

    name = "keep"
    supported_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self) -> None:
        self.told: list[tuple[Assignment, GroupMetadata]] = []

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        intended: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        said = validate_subscription(subscriptions)
        for topic in sorted({topic for entry in said.values() for topic in entry.topics}):
            wanting = sorted(member for member in said if topic in said[member].topics)
            free = {TopicPartition(topic, each) for each in range(cluster.partitions.get(topic, 0))}
            share = -(-len(free) // len(wanting))
            for member in wanting:
                kept = sorted(each for each in said[member].owned & free)[:share]
                intended[member] += kept
                free -= set(kept)
            for partition in sorted(free):
                poorest = min(wanting, key=lambda member: (len(intended[member]), member))
                intended[poorest].append(partition)
        return without_moving(intended, subscriptions)

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        self.told.append((assignment, metadata))


class AtOnce(Keep):
    """Breaks the rule: assigns a partition to one member while another one owns it (L8)."""

    name = "at-once"

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        everything = [
            TopicPartition(topic, number)
            for topic, count in cluster.partitions.items()
            for number in range(count)
        ]
        last = max(subscriptions)
        return {member: everything if member == last else [] for member in subscriptions}
