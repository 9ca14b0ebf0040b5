"""An assignor of a user's own, and our client as a member that has it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from kohort import Consumer
from kohort.group.assignors import Assignor, ClusterView, Subscription
from kohort.group.assignors.interface import Assignment, GroupMetadata
from kohort.group.events import GroupEvent
from kohort.types import TopicPartition
from tests.system.clients.group import Seen


class ByRank(Assignor):
    """Deals partitions out like cards, the member with the highest rank first."""

    name = "by-rank"
    version = 1

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.told: list[tuple[frozenset[TopicPartition], bytes | None]] = []
        self.computes = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        assert topics
        return bytes([self.rank])

    def assign(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        self.computes.set()
        assert self.goes_on.wait(60)
        ranks = {member: entry.user_data or b"" for member, entry in subscriptions.items()}
        order = sorted(subscriptions, key=lambda member: ranks[member], reverse=True)
        dealt: dict[str, list[TopicPartition]] = {member: [] for member in order}
        for topic, count in sorted(cluster.partitions.items()):
            for number in range(count):
                dealt[order[number % len(order)]].append(TopicPartition(topic, number))
        return dealt

    def assign_with_user_data(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        dealt = self.assign(cluster, subscriptions)
        word = b"dealt by %d" % self.rank
        return {member: Assignment(frozenset(dealt[member]), word) for member in dealt}

    def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
        assert metadata.group_id
        self.told.append((assignment.partitions, assignment.user_data))


class OurMember:
    """Our client under KIP-848, with an assignor of its own."""

    def __init__(self, servers: str, rank: int, topic: str = "t", group: str = "g") -> None:
        self.assignor = ByRank(rank)
        self.facts: list[GroupEvent] = []
        self.consumer = Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            group_protocol="consumer",
            group_local_assignors=[self.assignor],
            auto_offset_reset="earliest",
            event_listener=self.facts.append,
        )

    def poll(self) -> list[Seen]:
        polled = self.consumer.poll(timeout_ms=50)
        return [(each.partition, each.offset) for many in polled.values() for each in many]

    def assignment(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()
