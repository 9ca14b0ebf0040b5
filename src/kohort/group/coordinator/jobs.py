"""Slow work that a shard hands to its shell, and the results.

A job is a self-contained value, so it may run in any thread. The jobs of consumer groups are in
`consumer.decision`, because they hold the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.group.assignors.builtin import BUILTIN_ASSIGNORS
from kohort.group.assignors.interface import ClusterView
from kohort.group.subscription import Subscription
from kohort.types import TopicPartition
from kohort.wire.messages.group_records import GroupRecord


class Job(Protocol):
    """Slow work for one group."""

    @property
    def group_id(self) -> str:
        """Id of the group."""

    @property
    def size(self) -> int:
        """Return the amount of work: the number of members and partitions, or of names to match."""


# --------------------------------------------------------------------------------- consumer groups


class ChangedTarget(NamedTuple):
    """A member whose target has changed.

    The job creates the records, because there may be thousands and the shard's work blocks all
    other requests.

    Attributes:
        member_id: Its id.
        instance_id: Id that its operator configured, None for a dynamic member.
        record: The record of its whole target.
    """

    member_id: str
    instance_id: str | None
    record: GroupRecord


class NewTarget(Struct, frozen=True):
    """The result of a `TargetJob` or an `InstallJob`.

    Attributes:
        changed: The members whose target has changed.
        assignments: The target of each member, by topic name, for observers.
        error: Why the job failed; None: it did not.
        code: The error code for the member whose assignor ran.
    """

    changed: tuple[ChangedTarget, ...] = ()
    assignments: tuple[tuple[str, tuple[TopicPartition, ...]], ...] = ()
    error: str | None = None
    code: ErrorCode = ErrorCode.NONE


class MatchedTopics(Struct, frozen=True):
    """The result of a `RegexJob`.

    Attributes:
        matches: For each expression, the topics whose whole name it matches.
        version: The version of the topics.
    """

    matches: Mapping[str, frozenset[str]]
    version: int


# ------------------------------------------------------------------------------------ draft groups


class DraftAssignmentJob(Struct, frozen=True):
    """Computes the assignment of one draft group.

    Attributes:
        group_id: The group.
        generation: The new generation.
        number: Number of the attempt within the generation.
        assignor: Name of the assignor.
        wanted: The topics that each consumer wants, by consumer id.
        topics: The partition counts of those topics.
    """

    group_id: str
    generation: int
    number: int
    assignor: str
    wanted: Mapping[str, tuple[str, ...]]
    topics: Mapping[str, int]

    @property
    def size(self) -> int:
        """Return the amount of work: consumers and partitions."""
        return len(self.wanted) + sum(self.topics.values())


class DraftJobDone(Struct, frozen=True):
    """A job for an assignment has ended or failed.

    Attributes:
        job: The job.
        owned: The partitions of each consumer; None: the job failed.
    """

    job: DraftAssignmentJob
    owned: Mapping[str, Sequence[TopicPartition]] | None


def compute(job: DraftAssignmentJob) -> dict[str, tuple[TopicPartition, ...]]:
    """Do the job: return the partitions of each consumer.

    Raises:
        Exception: Any error of the assignor; the shell reports it with `DraftJobDone`.
    """
    subscriptions = {
        consumer_id: Subscription(topics=frozenset(topics))
        for consumer_id, topics in job.wanted.items()
    }
    assignor = BUILTIN_ASSIGNORS[job.assignor]
    assignment = assignor.assign(ClusterView(job.topics), subscriptions)
    return {consumer_id: tuple(assignment.get(consumer_id, ())) for consumer_id in job.wanted}
