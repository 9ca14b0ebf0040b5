"""Tasks, and the partitions that each of them reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from kohort.errors import ConfigError, LocalProtocolError
from kohort.types import TopicPartition


class Task(NamedTuple):
    """One task: a sub-topology and one partition number for all its topics."""

    sub_topology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.sub_topology}_{self.partition}"


class SubTopology(Struct, frozen=True):
    """A part of an application whose tasks exchange no data with other parts.

    Attributes:
        topics: The topics that it reads, which are co-partitioned.
        is_stateful: Whether its tasks have state, which must be restored when they move.
    """

    topics: tuple[str, ...]
    is_stateful: bool = True


class Topology:
    """The sub-topologies of an application; the same on all members.

    Attributes:
        sub_topologies: Its parts, indexed by their numbers.
        number_of: For each topic, the number of the part that reads it.
        stateless: The numbers of the parts without state.
    """

    def __init__(self, sub_topologies: Iterable[SubTopology]) -> None:
        """Number the parts.

        Raises:
            ConfigError: Two parts read the same topic, or a part reads none.
        """
        self.sub_topologies = tuple(sub_topologies)
        self.number_of: dict[str, int] = {}
        for number, part in enumerate(self.sub_topologies):
            if not part.topics:
                raise ConfigError(f"sub-topology {number} reads no topic")
            for topic in part.topics:
                other = self.number_of.setdefault(topic, number)
                if other != number:
                    raise ConfigError(f"sub-topologies {other} and {number} both read {topic}")
        self.stateless = frozenset(
            number for number, part in enumerate(self.sub_topologies) if not part.is_stateful
        )

    @property
    def topics(self) -> frozenset[str]:
        """All topics that are read."""
        return frozenset(self.number_of)

    def tasks(self, partitions: Mapping[str, int]) -> list[Task]:
        """Return all tasks, in order.

        A part has no tasks until all its topics exist.

        Args:
            partitions: The number of partitions of each existing topic.

        Raises:
            LocalProtocolError: A part's topics have different numbers of partitions.
        """
        found: list[Task] = []
        for number, part in enumerate(self.sub_topologies):
            counts = {topic: partitions.get(topic, 0) for topic in part.topics}
            if all(counts.values()):
                if len(set(counts.values())) > 1:
                    raise LocalProtocolError(
                        f"the topics of sub-topology {number} are not co-partitioned: {counts}"
                    )
                found += (Task(number, each) for each in range(counts[part.topics[0]]))
        return found

    def steady(self, before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
        """Return the numbers of partitions to plan with while topics grow.

        A stateful part keeps its tasks, because its keys are divided among them. A stateless part
        has as many tasks as all its topics have partitions.

        Args:
            before: The numbers when the instance started, for which the state was created.
            now: The numbers of the existing topics.
        """
        counts = dict(now)
        for number, part in enumerate(self.sub_topologies):
            every = [now.get(topic, 0) for topic in part.topics]
            if number not in self.stateless:
                every += [before[topic] for topic in part.topics if topic in before]
            counts.update(dict.fromkeys(part.topics, min(every)))
        return counts

    def inputs(self, tasks: Iterable[Task]) -> frozenset[TopicPartition]:
        """Return the partitions that tasks read."""
        topics = [part.topics for part in self.sub_topologies]
        return frozenset(
            TopicPartition(topic, partition)
            for number, partition in tasks
            for topic in topics[number]
        )

    def tasks_of(self, owned: Iterable[TopicPartition]) -> set[Task]:
        """Return the tasks that read any of the partitions; unknown topics are ignored."""
        numbers = self.number_of
        return {Task(numbers[topic], partition) for topic, partition in owned if topic in numbers}
