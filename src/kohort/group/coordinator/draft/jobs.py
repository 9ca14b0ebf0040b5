"""The assignment of a draft group, as work that may be done anywhere (D5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.group.assignors import BUILTIN_ASSIGNORS, ClusterView, Subscription
from kohort.types import TopicPartition
from kohort.values import dataclass


@dataclass(frozen=True, slots=True)
class DraftAssignmentJob:
    """Work of the coordinator: share the partitions of one group out.

    Attributes:
        group_id: The group.
        generation: The generation that is beginning.
        number: Counts the attempts within the generation.
        assignor: Name of the assignor.
        wanted: The topics that each consumer wants, by consumer id.
        topics: How many partitions those topics have.
    """

    group_id: str
    generation: int
    number: int
    assignor: str
    wanted: Mapping[str, tuple[str, ...]]
    topics: Mapping[str, int]

    @property
    def size(self) -> int:
        """How much there is to do: consumers and partitions."""
        return len(self.wanted) + sum(self.topics.values())


@dataclass(frozen=True, slots=True)
class DraftJobDone:
    """An assignment is made, or could not be.

    Attributes:
        job: The job.
        owned: What each consumer gets; None when it failed.
    """

    job: DraftAssignmentJob
    owned: Mapping[str, Sequence[TopicPartition]] | None


def compute(job: DraftAssignmentJob) -> dict[str, tuple[TopicPartition, ...]]:
    """Do the job: return what each consumer gets.

    Raises:
        Exception: Whatever the assignor raises; the shell reports it with `DraftJobDone`.
    """
    subscriptions = {
        consumer_id: Subscription(topics=frozenset(topics))
        for consumer_id, topics in job.wanted.items()
    }
    assignor = BUILTIN_ASSIGNORS[job.assignor]
    assignment = assignor.assign(ClusterView(job.topics), subscriptions)
    return {consumer_id: tuple(assignment.get(consumer_id, ())) for consumer_id in job.wanted}
