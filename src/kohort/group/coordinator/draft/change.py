"""What one event does to one draft group, while its handlers run."""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.consumer.topics import TopicsImage
from kohort.group.coordinator.draft.group import DraftGroup, DraftState
from kohort.group.coordinator.draft.jobs import DraftAssignmentJob
from kohort.group.coordinator.events import Deadline
from kohort.group.coordinator.records import LogState
from kohort.group.effects import Reply
from kohort.group.events import Cause, GroupEvent, GroupStateChanged, MemberLeft
from kohort.group.machine import Deadlines
from kohort.group.values import replace
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.schema import Message


@dataclass(slots=True)
class GroupChange:
    """One group, and what is to be done about it.

    Attributes:
        config: Settings of the coordinator.
        log: Log state before this event.
        topics: The topics of the cluster.
        now: Time of the event in milliseconds.
        wall_ms: Time of day of the event.
        group: The group as it will be.
        deadlines: The shard's deadlines as they will be.
        records: Records to append.
        replies: Answers to release after that.
        observed: What happened.
        jobs: Assignments to make.
    """

    config: CoordinatorConfig
    log: LogState
    topics: TopicsImage
    now: int
    wall_ms: int
    group: DraftGroup
    deadlines: Deadlines[Deadline]
    records: list[GroupRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)
    jobs: list[DraftAssignmentJob] = field(default_factory=list)

    @property
    def state(self) -> DraftState:
        """The group's state."""
        return self.group.state

    def enter(self, state: DraftState) -> None:
        """Change the group's state, and say so."""
        before, self.group = self.group.state, replace(self.group, state=state)
        self.observed.append(
            GroupStateChanged(
                group=self.group.group_id,
                now=self.now,
                generation=self.group.generation,
                before=before.value,
                after=state.value,
            )
        )

    def reply(self, token: int, response: Message, version: int) -> None:
        """Answer a request."""
        self.replies.append(Reply(token, response, version))

    def start(self, deadline: Deadline, delay_ms: int) -> None:
        """Let a deadline run from now, in place of the same one that may be running."""
        self.deadlines = self.deadlines.set(deadline, self.now + delay_ms)

    def cancel(self, deadline: Deadline) -> None:
        """Stop a deadline, if it runs."""
        self.deadlines = self.deadlines.cancel(deadline)

    def say_left(self, consumer_id: str, cause: Cause) -> None:
        """Report that a consumer is gone."""
        left = MemberLeft(group=self.group.group_id, now=self.now, member=consumer_id, cause=cause)
        self.observed.append(left)
