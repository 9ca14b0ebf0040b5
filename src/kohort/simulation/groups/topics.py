"""Topics of the simulated cluster, with the ends of their partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID

from msgspec import Struct, field

from kohort.types import TopicPartition


class Topic(Struct):
    """A topic; a recreated one is another topic.

    Attributes:
        name: Its name.
        topic_id: Its id; differs between two topics of one name.
        ends: For each partition, the offset of the next record.
    """

    name: str
    topic_id: UUID
    ends: list[int] = field(default_factory=list)


class Topics:
    """All topics of the cluster."""

    def __init__(self) -> None:
        self.present: dict[str, Topic] = {}
        self.version = 0
        self._made = 0
        self._matching: dict[str, tuple[int, frozenset[str]]] = {}

    def create(self, name: str, partitions: int) -> Topic:
        """Create a topic, whose name must not exist."""
        self._made += 1
        self.version += 1
        topic = Topic(name, UUID(int=(1 << 64) + self._made), [0] * partitions)
        self.present[name] = topic
        return topic

    def delete(self, name: str) -> bool:
        """Delete a topic; return whether it existed."""
        self.version += 1
        return self.present.pop(name, None) is not None

    def grow(self, name: str, by: int) -> None:
        """Add partitions to a topic, if it exists."""
        if name in self.present:
            self.version += 1
            self.present[name].ends += [0] * by

    def matching(self, pattern: str) -> frozenset[str]:
        """Return the topics whose whole name matches an expression."""
        known = self._matching.get(pattern)
        if known is None or known[0] != self.version:
            names = frozenset(name for name in self.present if re.fullmatch(pattern, name))
            known = self._matching[pattern] = (self.version, names)
        return known[1]

    def end(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of a partition, 0 if it does not exist."""
        topic = self.present.get(partition.topic)
        if topic is None or partition.partition >= len(topic.ends):
            return 0
        return topic.ends[partition.partition]

    def counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        return {name: len(topic.ends) for name, topic in sorted(self.present.items())}

    def partitions(self, names: tuple[str, ...] | frozenset[str]) -> Iterator[TopicPartition]:
        """Yield the partitions of the topics that exist."""
        for name in sorted(names):
            if name in self.present:
                for number in range(len(self.present[name].ends)):
                    yield TopicPartition(name, number)
