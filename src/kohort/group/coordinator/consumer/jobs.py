"""Slow work of the coordinator: described here, done by the shell wherever it likes.

A job is a value with all it needs, so it may run in any thread. What comes of it goes back to the
shard as `JobDone`; by then the group may have moved on, and a job that nobody waits for any more is
passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.group import ConsumerGroup
from kohort.group.coordinator.consumer.topics import TopicsImage
from kohort.types import TopicPartition
from kohort.values import dataclass
from kohort.wire.messages.client_assignors import ConsumerGroupInstallAssignmentRequest
from kohort.wire.messages.group_records import GroupRecord


@dataclass(frozen=True, slots=True)
class TargetJob:
    """Make a target assignment (K11).

    Attributes:
        token: Number to report the result with.
        group: The group as it was when the job began.
        topics: The topics of the cluster.
        assignor: Name of the assignor.
        rack_aware: Whether it is to look at racks (KIP-881).
    """

    token: int
    group: ConsumerGroup
    topics: TopicsImage
    assignor: str
    rack_aware: bool = False

    @property
    def group_id(self) -> str:
        """Id of the group."""
        return self.group.group_id

    @property
    def size(self) -> int:
        """How much there is to do: members and partitions."""
        by_name = self.topics.by_name
        topics = (by_name.get(name) for name in self.group.topics)
        return len(self.group.members) + sum(view.partitions for view in topics if view)


@dataclass(frozen=True, slots=True)
class RegexJob:
    """Find the topics that regular expressions stand for (K50).

    Attributes:
        token: Number to report the result with.
        group_id: Id of the group.
        regexes: The expressions, in the syntax of RE2.
        topics: The topics of the cluster.
    """

    token: int
    group_id: str
    regexes: frozenset[str]
    topics: TopicsImage

    @property
    def size(self) -> int:
        """How much there is to do: names to hold against expressions."""
        return len(self.regexes) * (1 + len(self.topics.by_name))


@dataclass(frozen=True, slots=True)
class InstallJob:
    """Hold a member's assignment against the group it was made for (K61).

    Attributes:
        token: Number to report the result with.
        group: The group as the member was told it.
        topics: The topics as it was told them.
        assignor: Name of its assignor.
        request: What it made.
    """

    token: int
    group: ConsumerGroup
    topics: TopicsImage
    assignor: str
    request: ConsumerGroupInstallAssignmentRequest

    @property
    def group_id(self) -> str:
        """Id of the group."""
        return self.group.group_id

    @property
    def size(self) -> int:
        """How much there is to do: members and partitions."""
        entries = self.request.members
        given = sum(len(t.partitions) for each in entries for t in each.topic_partitions)
        return len(self.group.members) + given


class ChangedTarget(NamedTuple):
    """A member whose target is another now.

    The job makes the record, for there may be thousands, and everybody waits while the shard does
    something.

    Attributes:
        member_id: Its id.
        instance_id: Id that its operator gave it, None for a dynamic member.
        record: All that it is to have, as it goes into the log.
    """

    member_id: str
    instance_id: str | None
    record: GroupRecord


@dataclass(frozen=True, slots=True)
class NewTarget:
    """What came of a `TargetJob` or an `InstallJob`.

    Attributes:
        changed: The members whose target is another now.
        assignments: What each member is to have, by topic name, for whoever watches.
        error: Why there is none, None when there is.
        code: For the member whose assignor it was: why there is none.
    """

    changed: tuple[ChangedTarget, ...] = ()
    assignments: tuple[tuple[str, tuple[TopicPartition, ...]], ...] = ()
    error: str | None = None
    code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class MatchedTopics:
    """What came of a `RegexJob`.

    Attributes:
        matches: For each expression the topics whose whole name it matches.
        version: The version of the topics.
    """

    matches: Mapping[str, frozenset[str]]
    version: int


ConsumerJob: TypeAlias = TargetJob | RegexJob | InstallJob
