"""What one event does to one group, while its handlers run.

A draft is local to one decision. It starts from values, collects changed values and effects, and is
thrown away: nothing outside sees it change.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.group.coordinator.classic import fold
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import Deadline
from kohort.group.coordinator.records import LogState
from kohort.group.effects import Reply
from kohort.group.events import Cause, GroupEvent, GroupStateChanged, MemberLeft
from kohort.group.machine import Deadlines
from kohort.group.values import replace
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.schema import Message

# KIP-800: what a client says is cut by the client; one that does not must not fill our memory.
REASON_MAX = 255


@dataclass(slots=True)
class GroupDraft:
    """One group, and what is to be done about it.

    Attributes:
        config: Settings of the coordinator.
        log: Log state before this event.
        now: Time of the event in milliseconds.
        wall_ms: Time of day of the event.
        group: The group as it will be.
        deadlines: The shard's deadlines as they will be.
        records: Records to append.
        replies: Answers to release after that.
        observed: What happened.
    """

    config: CoordinatorConfig
    log: LogState
    now: int
    wall_ms: int
    group: ClassicGroup
    deadlines: Deadlines[Deadline]
    records: list[GroupRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)

    @property
    def state(self) -> GroupState:
        """The group's state."""
        return self.group.state

    def enter(self, state: GroupState) -> None:
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

    def write_group(self, assignments: dict[str, bytes]) -> None:
        """Append the group with these assignments to the log."""
        self.records.append(fold.group_record(self.group, assignments, self.wall_ms))

    def say_left(self, member_id: str, cause: Cause, reason: str = "") -> None:
        """Report that a member is gone."""
        self.observed.append(
            MemberLeft(
                group=self.group.group_id,
                now=self.now,
                member=member_id,
                cause=cause,
                reason=reason[:REASON_MAX],
            )
        )
