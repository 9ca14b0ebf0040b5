"""Slow work that a shard asks its shell for, and its results.

A job is a self-contained value, so it may run in any thread. Those of consumer groups are in
`consumer.decision`: they hold the group.
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
        """Return the amount of work: members and partitions, or names and expressions."""


# --------------------------------------------------------------------------------- consumer groups


class ChangedTarget(NamedTuple):
    """A member whose target has changed.

    The job makes the record, for there may be thousands, and all wait while the shard does
    something.

    Attributes:
        member_id: Its id.
        instance_id: Id that its operator gave it, None for a dynamic member.
        record: Its whole target, as it is written to the log.
    """

    member_id: str
    instance_id: str | None
    record: GroupRecord


class NewTarget(Struct, frozen=True):
    """The result of a `TargetJob` or an `InstallJob`.

    Attributes:
        changed: The members whose target has changed.
        assignments: The target of each member, by topic name, for observers.
        error: Why there is no target; None: there is one.
        code: The error code for the member whose assignor it was.
    """

    changed: tuple[ChangedTarget, ...] = ()
    assignments: tuple[tuple[str, tuple[TopicPartition, ...]], ...] = ()
    error: str | None = None
    code: ErrorCode = ErrorCode.NONE


class MatchedTopics(Struct, frozen=True):
    """The result of a `RegexJob`.

    Attributes:
        matches: For each expression the topics whose whole name it matches.
        version: The version of the topics.
    """

    matches: Mapping[str, frozenset[str]]
    version: int


# ------------------------------------------------------------------------------------ draft groups


class DraftAssignmentJob(Struct, frozen=True):
    """Work of the coordinator: assign the partitions of one group.

    Attributes:
        group_id: The group.
        generation: The generation that is beginning.
        number: Counts the attempts within the generation.
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
    """An assignment was made, or could not be.

    Attributes:
        job: The job.
        owned: The partitions of each consumer; None: it failed.
    """

    job: DraftAssignmentJob
    owned: Mapping[str, Sequence[TopicPartition]] | None


def compute(job: DraftAssignmentJob) -> dict[str, tuple[TopicPartition, ...]]:
    """Do the job: return the partitions of each consumer.

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
