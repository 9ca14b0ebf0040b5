"""The effects of one event on one group, while its handlers run.

A decision starts from values, collects changed values and effects, and is then discarded. Code
outside never sees it change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar, cast

from msgspec import Struct, field

from kohort.errors import ErrorCode
from kohort.group.coordinator import refusals
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import Deadline, RequestArrived, Unload
from kohort.group.coordinator.kind import Group, Serve
from kohort.group.coordinator.records import GroupLog, GroupsPart
from kohort.group.coordinator.session import LiveGroup, SessionState, ShardDecision
from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage
from kohort.group.effects import Reply
from kohort.group.events import (
    Assigned,
    Cause,
    GroupEvent,
    GroupStateChanged,
    MemberJoined,
    MemberLeft,
    RebalanceStarted,
)
from kohort.group.machine import Deadlines, Decision, Row, row
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.group_records import GroupRecord

# KIP-800: clients truncate their reasons; this bounds the memory if one does not.
REASON_MAX = 255

G = TypeVar("G", bound=LiveGroup)
S = TypeVar("S", bound=Enum)
C = TypeVar("C", bound=Decision[Enum])
R = TypeVar("R", bound=Message)
V = TypeVar("V")


class GroupDecision(Struct):
    """One group of any kind, and the effects on it.

    Attributes:
        group_id: Id of the group.
        config: Settings of the coordinator.
        log: Log state before this event.
        now: Time of the event in milliseconds.
        wall_ms: Time of day of the event.
        deadlines: The shard's deadlines after this event.
        topics: The topics of the cluster.
        records: Records to append.
        replies: Answers to release once the records are appended.
        observed: Events to report.
        why: The error of a refused request, once a guard has found one.
    """

    group_id: str
    config: CoordinatorConfig
    log: GroupLog
    now: int
    wall_ms: int
    deadlines: Deadlines[Deadline]
    topics: TopicsImage = NO_TOPICS
    records: list[GroupRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)
    why: object = None

    @property
    def existing(self) -> Group:
        """Return the group, which must exist."""
        raise NotImplementedError

    def write(self, records: Iterable[GroupRecord]) -> None:
        """Append records."""
        self.records.extend(records)

    def ended(self) -> None:
        """Drop the group's session state, after its tombstones were written."""

    def reply(self, token: int, response: Message, version: int) -> None:
        """Answer a request."""
        self.replies.append(Reply(token, response, version))

    def refuse(self, arrived: object) -> None:
        """Answer a request with the error in `why`, and discard everything else."""
        event = cast("RequestArrived[Message]", arrived)
        code = self.why if isinstance(self.why, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
        request = cast("Request[Message]", event.request)
        self.reply(event.token, refusals.refuse(request, event.version, code), event.version)

    def start(self, deadline: Deadline, delay_ms: int) -> None:
        """Start a deadline from now; restart it if it is running."""
        self.deadlines = self.deadlines.set(deadline, self.now + delay_ms)

    def cancel(self, deadline: Deadline) -> None:
        """Stop a deadline, if it runs."""
        self.deadlines = self.deadlines.cancel(deadline)

    # ------------------------------------------------------------------------------- facts

    def say_state(self, generation: int, before: str, after: str) -> None:
        """Report that the group has changed its state."""
        self.observed.append(
            GroupStateChanged(
                group=self.group_id,
                now=self.now,
                generation=generation,
                before=before,
                after=after,
            )
        )

    def say_joined(
        self, member_id: str, client_id: str, client_host: str, instance_id: str | None = None
    ) -> None:
        """Report a new member."""
        self.observed.append(
            MemberJoined(
                group=self.group_id,
                now=self.now,
                member=member_id,
                client_id=client_id,
                client_host=client_host,
                group_instance_id=instance_id,
            )
        )

    def say_left(self, member_id: str, cause: Cause, reason: str = "") -> None:
        """Report that a member has left."""
        self.observed.append(
            MemberLeft(
                group=self.group_id,
                now=self.now,
                member=member_id,
                cause=cause,
                reason=reason[:REASON_MAX],
            )
        )

    def say_rebalance(
        self, generation: int, cause: Cause, member_id: str = "", reason: str = ""
    ) -> None:
        """Report that a rebalance begins."""
        self.observed.append(
            RebalanceStarted(
                group=self.group_id,
                now=self.now,
                generation=generation,
                member=member_id,
                cause=cause,
                reason=reason[:REASON_MAX],
            )
        )

    def say_assigned(
        self, generation: int, assignments: Iterable[tuple[str, tuple[TopicPartition, ...]]]
    ) -> None:
        """Report the assignment of each member."""
        self.observed.append(
            Assigned(
                group=self.group_id,
                now=self.now,
                generation=generation,
                assignments=tuple(assignments),
            )
        )

    # ------------------------------------------------------------------------------- the end

    def hand_over(self, shard: ShardDecision) -> None:
        """Pass the deadlines and the effects to the shard."""
        if self.deadlines is not shard.session.deadlines:
            shard.session = replace(shard.session, deadlines=self.deadlines)
        shard.records += self.records
        shard.replies += self.replies
        shard.observed += self.observed


class LiveGroupDecision(GroupDecision, Generic[G], kw_only=True):
    """One group that rebalances in generations, and the effects on it.

    Attributes:
        group: The group after this event.
    """

    group: G

    def enter(self, state: Enum) -> None:
        """Change the group's state, and report it."""
        before, self.group = self.group.state, replace(self.group, state=state)
        self.say_state(self.group.generation, before.value, state.value)


class LiveKind(Generic[G]):
    """Common code for kinds with live groups in the session and stored groups in the log.

    Args:
        live: Groups with members, or waiting for members.
        stored: Groups as last written.
        run: Runs an event on one group, and collects its effects.
        triggers: The requests and deadlines that apply to a group.
    """

    def __init__(
        self,
        live: GroupsPart[G],
        stored: GroupsPart[V],
        run: Callable[[ShardDecision, str, type[object], object], None],
        triggers: Iterable[type[object]],
    ) -> None:
        self._live, self._stored, self._run = live, cast("GroupsPart[object]", stored), run
        self.serves: Mapping[type[object], Serve] = {each: self._serve(each) for each in triggers}

    def _serve(self, trigger: type[object]) -> Serve:
        run = self._run
        return lambda shard, group_id, event: run(shard, group_id, trigger, event)

    def lives(self, session: SessionState, group_id: str) -> bool:
        """Return whether a group has members or waits for members."""
        return group_id in self._live.of(session)

    def has(self, session: SessionState, log: GroupLog, group_id: str) -> bool:
        """Return whether the group exists and has more than positions."""
        return group_id in self._live.of(session) or group_id in self._stored.of(log)

    def ids(self, session: SessionState, log: GroupLog) -> Collection[str]:
        """Return the ids of all groups."""
        return {*self._live.of(session), *self._stored.of(log)}

    def unload(self, shard: ShardDecision, event: Unload) -> None:
        """C73, D1: answer parked requests."""
        for group_id in sorted(self._live.of(shard.session)):
            self._run(shard, group_id, Unload, event)


def refuse_unknown(decision: GroupDecision, arrived: RequestArrived[Message]) -> None:
    """Refuse a request to a group without members."""
    decision.why = ErrorCode.UNKNOWN_MEMBER_ID
    decision.refuse(arrived)


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
    """Create a row for a request; its event also has the request's origin."""
    return row(
        states,
        request,
        cast("Callable[[C, R], None]", handler),
        to=to,
        when=cast("Callable[[C, R], bool] | None", when),
        rule=rule,
        again=again,
    )
