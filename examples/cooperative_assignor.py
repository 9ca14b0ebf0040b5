"""A custom assignor with which members keep reading during a rebalance (KIP-429).

Topics with many partitions are distributed first. Two consumers name the class by its import path,
as configuration files and Spark's options do, and the second one joins while the first reads:

    python examples/cooperative_assignor.py
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from kohort import AdminClient, Consumer, EmbeddedBroker, TopicPartition
from kohort.client import NewTopic
from kohort.group.assignors import (
    Assignor,
    ClusterView,
    RebalanceProtocol,
    Subscription,
    settle_claims,
    without_moving,
)


class LongestFirst(Assignor):
    """Assigns each partition to its owner, or otherwise to the member with the fewest."""

    name = "longest-first"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, list[TopicPartition]]:
        """Leave out partitions that others must give up first; the next rebalance assigns them."""
        owned = settle_claims(subscriptions)
        target: dict[str, list[TopicPartition]] = {member: [] for member in sorted(subscriptions)}
        total = sum(cluster.partitions.values())
        share = -(-total // len(target))
        for topic, count in sorted(cluster.partitions.items(), key=lambda each: -each[1]):
            for number in range(count):
                place = TopicPartition(topic, number)
                able = [m for m in target if topic in subscriptions[m].topics]
                keeps = [m for m in able if place in owned[m] and len(target[m]) < share]
                if able:
                    target[min(keeps or able, key=lambda m: len(target[m]))].append(place)
        return without_moving(target, subscriptions)


def main() -> None:
    """Let two members share three topics."""
    path = f"{Path(__file__).stem}:{LongestFirst.__name__}"
    topics = [NewTopic("flights", 4), NewTopic("airports", 1), NewTopic("weather", 1)]
    names = [topic.name for topic in topics]
    with EmbeddedBroker() as broker:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "example",
            "partition.assignment.strategy": path,
            "heartbeat.interval.ms": 100,
        }
        with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics(topics)
        with Consumer.from_config(settings) as first, Consumer.from_config(settings) as second:
            first.subscribe(names)
            while len(first.assignment()) < 6:
                first.poll(100)
            print("alone:", len(first.assignment()), "partitions")
            second.subscribe(names)
            while not len(first.assignment()) == len(second.assignment()) == 3:
                first.poll(100)
                second.poll(100)
            print("together:", len(first.assignment()), "and", len(second.assignment()))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
