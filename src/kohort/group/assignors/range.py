"""The range assignor: of each topic, every member gets a run of neighbouring partitions (A1)."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.group.assignors.interface import (
    Assignor,
    ClusterView,
    member_order,
    subscribed_topics,
)
from kohort.group.subscription import Subscription
from kohort.types import TopicPartition


class RangeAssignor(Assignor):
    """Kafka's `range`: topics with the same number of partitions are split at the same places."""

    name = "range"

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member; racks are not looked at."""
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        members = member_order(subscriptions)
        for topic in subscribed_topics(cluster, subscriptions):
            wanting = [member for member in members if topic in subscriptions[member].topics]
            each, more = divmod(cluster.partitions[topic], len(wanting))
            start = 0
            for index, member in enumerate(wanting):
                # The first ones take one more each, until nothing is left over.
                end = start + each + (index < more)
                assignment[member] += [TopicPartition(topic, p) for p in range(start, end)]
                start = end
        return assignment
