"""The round-robin assignor: deals all partitions out in order (A2)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from kohort.group.assignors.interface import (
    Assignor,
    ClusterView,
    member_order,
    subscribed_topics,
)
from kohort.group.subscription import Subscription
from kohort.types import TopicPartition


class RoundRobinAssignor(Assignor):
    """Kafka's `roundrobin`: with equal subscriptions, loads differ by at most one."""

    name = "roundrobin"

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member; members not subscribed to a topic are skipped."""
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        turns = cycle(member_order(subscriptions))
        for topic in subscribed_topics(cluster, subscriptions):
            for partition in range(cluster.partitions[topic]):
                member = next(m for m in turns if topic in subscriptions[m].topics)
                assignment[member].append(TopicPartition(topic, partition))
        return assignment
