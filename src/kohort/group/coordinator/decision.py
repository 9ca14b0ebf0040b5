"""What one event does to one group, while its handlers run.

A decision starts from values, collects changed values and effects, and is thrown away: nothing
outside sees it change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import Enum
from typing import Generic, TypeVar, cast

from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import Deadline, RequestArrived
from kohort.group.coordinator.group import Group
from kohort.group.coordinator.offsets import commit as offsets
from kohort.group.coordinator.records import LogState
from kohort.group.effects import Reply
from kohort.group.events import (
    Cause,
    GroupEvent,
    GroupStateChanged,
    MemberLeft,
)
from kohort.group.machine import Deadlines, Decision, Row, row
from kohort.values import dataclass, replace
from kohort.wire.messages.group_records import GroupRecord
from kohort.wire.messages.offsets import OffsetCommitRequest
from kohort.wire.schema import Message

# KIP-800: what a client says is cut by the client; one that does not must not fill our memory.
REASON_MAX = 255

G = TypeVar("G", bound=Group)
S = TypeVar("S", bound=Enum)
C = TypeVar("C", bound=Decision[Enum])
R = TypeVar("R", bound=Message)


@dataclass(slots=True)
class GroupDecision(Generic[G]):
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
    group: G
    deadlines: Deadlines[Deadline]
    records: list[GroupRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)

    def enter(self, state: Enum) -> None:
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

    def store(self, commit: RequestArrived[OffsetCommitRequest]) -> None:
        """Write positions to the log (C52), and answer."""
        most = self.config.offset_metadata_max_bytes
        result = offsets.store(commit.request, most, self.now, self.wall_ms)
        self.records.extend(result.records)
        self.reply(commit.token, result.response, commit.version)
        self.observed.extend(result.observed)


def on(
    states: S | tuple[S, ...],
    request: type[R],
    handler: Callable[[C, RequestArrived[R]], None],
    *,
    to: S | tuple[S, ...] = (),
    when: Callable[[C, RequestArrived[R]], bool] | None = None,
    rule: str = "",
    again: bool = False,
) -> Row[S, C]:
    """Write a row for a request, which comes with where it came from."""
    return row(
        states,
        request,
        cast("Callable[[C, R], None]", handler),
        to=to,
        when=cast("Callable[[C, R], bool] | None", when),
        rule=rule,
        again=again,
    )
