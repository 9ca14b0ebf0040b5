"""The session of a member of a consumer group, and the decision that one event works on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from immutables import Map
from msgspec import Struct, field

from kohort.group.effects import Callback, Send
from kohort.group.events import Ownership
from kohort.group.machine import State, TableError
from kohort.group.member.events import GroupMembershipOperation
from kohort.group.member.offers import Offer
from kohort.group.member.session import MemberDecision, Sent, Session
from kohort.group.subscription import NO_GENERATION
from kohort.types import TopicPartition
from kohort.values import replace
from kohort.wire.messages.consumer_group import (
    AssignmentMetadata,
    ClientAssignor,
    ConsumerGroupHeartbeatRequest,
)

NOT_JOINED = 0  # the epoch of a member that joins


class ConsumerMemberState(State):
    """The states of Kafka's own client (L30)."""

    UNSUBSCRIBED = "in no group"
    JOINING = "asks to join"
    RECONCILING = "moves from its partitions to its target: the application is called"
    ACKNOWLEDGING = "has reconciled; the next heartbeat acknowledges it"
    STABLE = "member with all partitions of its target"
    FENCED = "was removed; the lost partitions are reported to the application"
    PREPARE_LEAVING = "the application gives partitions up, then the member leaves"
    LEAVING = "says good-bye"
    FATAL = "cannot go on"
    STALE = "left, because the application did not poll; joins again at its next poll"


_S = ConsumerMemberState
_JOINED = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE})

# L30: the states from which each state may be entered.
PREDECESSORS: Mapping[Enum, frozenset[ConsumerMemberState]] = {
    _S.UNSUBSCRIBED: frozenset({_S.PREPARE_LEAVING, _S.LEAVING, _S.FENCED}),
    _S.JOINING: frozenset({_S.FENCED, _S.UNSUBSCRIBED, _S.STALE}),
    _S.RECONCILING: frozenset({_S.STABLE, _S.JOINING, _S.ACKNOWLEDGING, _S.RECONCILING}),
    _S.ACKNOWLEDGING: frozenset({_S.RECONCILING}),
    _S.STABLE: frozenset({_S.JOINING, _S.ACKNOWLEDGING, _S.RECONCILING}),
    _S.FENCED: _JOINED | {_S.PREPARE_LEAVING, _S.LEAVING},
    _S.PREPARE_LEAVING: _JOINED | {_S.UNSUBSCRIBED},
    _S.LEAVING: frozenset({_S.PREPARE_LEAVING}),
    _S.FATAL: _JOINED | {_S.PREPARE_LEAVING, _S.LEAVING, _S.UNSUBSCRIBED},
    _S.STALE: frozenset({_S.LEAVING}),
}


class HeartbeatReady(Struct, frozen=True):
    """A trigger of the table: a heartbeat is due and can be sent."""


class GoodByeAnswered(Struct, frozen=True):
    """A trigger of the table: the leave request was answered, or there will be no answer."""


class TopicIdPartition(NamedTuple):
    """A partition by topic id, which differs after a topic is deleted and recreated."""

    topic_id: UUID
    partition: int


Partitions = frozenset[TopicIdPartition]


class HeartbeatFields(Struct, frozen=True):
    """The fields that a heartbeat may leave out when the coordinator knows them.

    Attributes:
        rebalance_timeout_ms: Longest time to give partitions up.
        rack_id: The member's rack.
        topics: The topics that it subscribes to.
        pattern: Or the regular expression; empty to withdraw an earlier one.
        server_assignor: The server-side assignor it asks for.
        partitions: The partitions it claims to own; None: send them again.
        client_assignors: The assignors it can run itself (K60), None if there are none.
    """

    rebalance_timeout_ms: int
    rack_id: str | None
    topics: tuple[str, ...]
    pattern: str | None
    server_assignor: str | None
    partitions: frozenset[TopicIdPartition] | None
    client_assignors: tuple[ClientAssignor, ...] | None = None


class Computation(Struct, frozen=True):
    """The group's assignment while this member computes it (K61).

    Attributes:
        token: Number of the request or job in progress.
        epoch: The group epoch of the assignment.
        assignor: Name of the assignor.
        topics: Ids of the group's topics, by name.
    """

    token: int = 0
    epoch: int = 0
    assignor: str = ""
    topics: Map[str, UUID] = field(default_factory=Map)


class ConsumerMemberSession(Session, frozen=True, kw_only=True):
    """The whole state of a member; a value. The client generates its permanent id (KIP-1082).

    Attributes:
        state: Its state.
        pattern: Or the regular expression for the coordinator.
        pattern_sent: Whether a pattern was sent to the coordinator since the member joined.
        epoch: Its member epoch, 0 when it is not a member.
        owned: Partitions that were reported to the application and not given up.
        adding: New partitions in the running call of the listener.
        target: Its last target from the coordinator, None before the first.
        acknowledged: Its partitions at its last acknowledgement, None before the first.
        names: Names of topics by id, including those of all owned partitions.
        interval_ms: Time between heartbeats, set by the coordinator; 0 before its first answer.
        pause_ms: Time to the next heartbeat: part of the interval after a change, then longer.
        change_heard_at: Future times at which other members learn of the last change; pauses are
            short again after each.
        sent: The fields that the coordinator knows; None: send all of them (L31).
        greeted: Whether the coordinator may have a record of this member.
        is_due: Whether to send a heartbeat as soon as possible.
        after_leaving: The state that follows `LEAVING`.
        announced: The announcement of the member's own assignors.
        asking: Number of the job that asks them for user data; None: there is none.
        unasked: Whether to ask them again after a wait, because one has failed.
        asks_members: Whether the coordinator asks members for assignments; Kafka's does not (K60).
        computation: The group's assignment, while this member computes it.
        assignment_metadata: User data from the leading assignor for this member's assignor.
        told_metadata: The user data that its assignor received last.
        closing: How to close; None: the application has not closed the member.
    """

    state: ConsumerMemberState = ConsumerMemberState.UNSUBSCRIBED
    pattern: str | None = None
    pattern_sent: bool = False
    epoch: int = NOT_JOINED
    owned: Partitions = frozenset()
    adding: Partitions = frozenset()
    target: Partitions | None = None
    acknowledged: Partitions | None = None
    names: Map[UUID, str] = field(default_factory=Map)
    interval_ms: int = 0
    pause_ms: int = 0
    change_heard_at: tuple[int, ...] = ()
    sent: HeartbeatFields | None = None
    greeted: bool = False
    is_due: bool = False
    after_leaving: ConsumerMemberState = ConsumerMemberState.UNSUBSCRIBED
    announced: tuple[ClientAssignor, ...] = ()
    asking: int | None = None
    unasked: bool = False
    asks_members: bool = True
    computation: Computation | None = None
    assignment_metadata: AssignmentMetadata | None = None
    told_metadata: AssignmentMetadata | None = None
    closing: GroupMembershipOperation | None = None

    @property
    def is_member(self) -> bool:
        """Return whether the member is in the group, as far as it knows."""
        return self.epoch > NOT_JOINED

    @property
    def generation(self) -> int:
        """Return the member epoch, -1 when it is not a member."""
        return self.epoch if self.is_member else NO_GENERATION

    @property
    def wants(self) -> bool:
        """Return whether the application has a subscription."""
        return bool(self.topics) or self.pattern is not None

    @property
    def unnamed(self) -> frozenset[UUID]:
        """Return the topics that are assigned to this member and whose names it does not know."""
        return frozenset(p.topic_id for p in self.target or () if p.topic_id not in self.names)

    @property
    def awaited(self) -> tuple[int, ...]:
        """Return the tokens it waits for: answers, or the job of a computation."""
        pending = (self.heartbeat, self.computation)
        return tuple(each.token for each in pending if each is not None)

    @property
    def claimed(self) -> Partitions:
        """Return the partitions that this member reports as owned.

        They include assigned partitions not taken yet: the application may soon read them, so the
        coordinator must not assign them to another member.
        """
        return self.owned | self.adding | (self.target or frozenset())

    def named(self, partitions: Iterable[TopicIdPartition]) -> frozenset[TopicPartition]:
        """Return partitions by topic name, as the application knows them."""
        return frozenset(TopicPartition(self.names[p.topic_id], p.partition) for p in partitions)


class ConsumerMemberDecision(MemberDecision[ConsumerMemberSession]):
    """The effects of one event on a member of a consumer group, while its handlers run.

    Attributes:
        assignors: The member's own assignors, in order of preference.
    """

    assignors: tuple[Offer, ...] = ()

    def enter(self, state: Enum, reason: str = "") -> None:
        """Change the state if L30 allows it, and report the change.

        Raises:
            TableError: L30 does not allow it.
        """
        before = self.session.state
        if before not in PREDECESSORS[state]:
            raise TableError(f"consumer member: {state.name} after {before.name}")
        MemberDecision.enter(self, state, reason)

    def beat(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Send a heartbeat; one at a time (L31)."""
        session = self.session
        assert session.heartbeat is None
        sent = Sent(session.next_token, session.member_id, request.member_epoch)
        self.sends.append(Send(sent.token, request))
        self.session = replace(
            session, next_token=sent.token + 1, heartbeat=sent, is_due=False, greeted=True
        )

    def call(self, change: Ownership, partitions: Partitions) -> None:
        """Queue a call into the application; only one runs at a time."""
        session = self.session
        assert session.callback is None
        metadata = session.assignment_metadata if change is Ownership.ASSIGNED else None
        callback = Callback(
            self.token(),
            change,
            session.named(partitions),
            assignor=metadata.assignor if metadata else "",
            generation=session.generation,
            user_data=(metadata.metadata or None) if metadata else None,
            assignment=session.named(session.owned | partitions) if metadata else frozenset(),
        )
        told = (
            session.assignment_metadata if change is Ownership.ASSIGNED else session.told_metadata
        )
        self.session = replace(self.session, callback=callback, told_metadata=told)
        self.callbacks.append(callback)
