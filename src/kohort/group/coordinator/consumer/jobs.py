"""Slow work of the coordinator: described here, done by the shell wherever it likes.

A job is a self-contained value, so it may run in any thread. Its result goes back to the
shard as `JobDone`; by then the group may have changed, and the result of an obsolete job is
ignored.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from kohort.group.coordinator.consumer.state.group import ConsumerGroup
from kohort.group.coordinator.topics import TopicsImage
from kohort.wire.messages.client_assignors import ConsumerGroupInstallAssignmentRequest


class TargetJob(Struct, frozen=True):
    """Make a target assignment (K11).

    Attributes:
        token: Number to report the result with.
        group: The group as it was when the job began.
        topics: The topics of the cluster.
        assignor: Name of the assignor.
        rack_aware: Whether it considers racks (KIP-881).
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
        """Return the amount of work: members and partitions."""
        by_name = self.topics.by_name
        topics = (by_name.get(name) for name in self.group.topics)
        return len(self.group.members) + sum(view.partitions for view in topics if view)


class RegexJob(Struct, frozen=True):
    """Find the topics that match regular expressions (K50).

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
        """Return the amount of work: names to match with expressions."""
        return len(self.regexes) * (1 + len(self.topics.by_name))


class InstallJob(Struct, frozen=True):
    """Check a member's assignment against the group it was made for (K61).

    Attributes:
        token: Number to report the result with.
        group: The group as it was sent to the member.
        topics: The topics as they were sent to it.
        assignor: Name of its assignor.
        request: Its result.
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
        """Return the amount of work: members and partitions."""
        entries = self.request.members
        given = sum(len(t.partitions) for each in entries for t in each.topic_partitions)
        return len(self.group.members) + given


ConsumerJob: TypeAlias = TargetJob | RegexJob | InstallJob
