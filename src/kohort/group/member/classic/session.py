"""What a classic member knows; values, and the draft that one event works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kohort.errors import KohortError
from kohort.group.assignors.interface import Assignment, Assignor, RebalanceProtocol
from kohort.group.effects import AssignmentJob, Callback, Effects, Send
from kohort.group.events import GroupEvent, MemberStateChanged, Ownership
from kohort.group.machine import Deadlines
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import GroupMembershipOperation, MemberDeadline
from kohort.group.subscription import NO_GENERATION
from kohort.group.values import replace
from kohort.types import TopicPartition
from kohort.wire.schema import Message


class MemberState(Enum):
    """The states of a classic member; the four of Kafka's client (L9), and what is around them."""

    UNSUBSCRIBED = "wants nothing"
    UNJOINED = "wants to join; waits for the coordinator, or before it tries again"
    REVOKING = "the application gives partitions up, before the member joins again"
    PREPARING_REBALANCE = "JoinGroup is on its way"
    COMPLETING_REBALANCE = "joined; the assignment is being made, or SyncGroup is on its way"
    ASSIGNING = "the application is told what moves away, then what it got"
    STABLE = "member with an assignment"
    STALE = "left, because the application did not poll; joins again at its next poll"
    LEAVING = "gives partitions up, then leaves"
    CLOSED = "done"
    FATAL = "cannot go on until it is unsubscribed"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request on its way, and who the member was when it was sent."""

    token: int
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSession:
    """All that a member knows; a value.

    Attributes:
        state: Its state.
        topics: What the application subscribes to.
        joined_topics: What it said when it joined last.
        member_id: Id from the coordinator, empty when it has none.
        generation: Present generation, -1 when it has none.
        owned: Partitions it was given and has not given up.
        assignor: Name of the assignor of this generation.
        group_topics: As leader: topics of all members, whose partitions it has to watch (L8).
        coordinator_known: Whether requests can be sent.
        looking_up: Whether the shell looks for the coordinator.
        request: The JoinGroup, SyncGroup or LeaveGroup on its way.
        heartbeat: The heartbeat on its way.
        callback: The call into the application that has not returned.
        job: The assignment that is being made.
        assignment: What it was given, until the application has given up what moves away.
        prepared: Whether the application has given its partitions up for this rebalance (L4).
        rejoin: Why to join again as soon as this rebalance is through; None: no need.
        reason: What to say as reason in the next JoinGroup (KIP-800).
        losing: While leaving: whether what it owns counts as lost (L7).
        operation: What closing means for the group (KIP-1092).
        after_leaving: The state that follows `LEAVING`.
        failures: How many attempts to join or to find the coordinator failed in a row.
        next_token: The next number to give to a request, callback or job.
        deadlines: What is due when.
    """

    state: MemberState = MemberState.UNSUBSCRIBED
    topics: frozenset[str] = frozenset()
    joined_topics: frozenset[str] = frozenset()
    member_id: str = ""
    generation: int = NO_GENERATION
    owned: frozenset[TopicPartition] = frozenset()
    assignor: str = ""
    group_topics: frozenset[str] = frozenset()
    coordinator_known: bool = False
    looking_up: bool = False
    request: Sent | None = None
    heartbeat: Sent | None = None
    callback: Callback | None = None
    job: AssignmentJob | None = None
    assignment: Assignment | None = None
    prepared: bool = False
    rejoin: str | None = None
    reason: str = ""
    losing: bool = False
    operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT
    after_leaving: MemberState = MemberState.CLOSED
    failures: int = 0
    next_token: int = 1
    deadlines: Deadlines[MemberDeadline] = field(default_factory=Deadlines)

    @property
    def is_member(self) -> bool:
        """Whether the member belongs to a generation, as far as it knows."""
        return bool(self.member_id) and self.generation != NO_GENERATION


@dataclass(slots=True)
class MemberDraft:
    """What one event does to a member, while its handlers run.

    Attributes:
        config: Settings.
        assignors: The assignors it knows, the best liked first.
        protocol: How it gives partitions up.
        session: The member as it will be.
        now: Time of the event in milliseconds.
        sends: Requests to send.
        callbacks: Calls into the application.
        jobs: Work to do.
        find_coordinator: Whether to look for the coordinator.
        raised: Errors for the application.
        observed: What happened.
    """

    config: MemberConfig
    assignors: Mapping[str, Assignor]
    protocol: RebalanceProtocol
    session: MemberSession
    now: int
    sends: list[Send] = field(default_factory=list)
    callbacks: list[Callback] = field(default_factory=list)
    jobs: list[AssignmentJob] = field(default_factory=list)
    find_coordinator: bool = False
    raised: list[KohortError] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)

    @property
    def state(self) -> MemberState:
        """The member's state."""
        return self.session.state

    @property
    def is_cooperative(self) -> bool:
        """Whether it keeps what it owns during a rebalance (KIP-429)."""
        return self.protocol is RebalanceProtocol.COOPERATIVE

    def enter(self, state: MemberState, reason: str = "") -> None:
        """Change the state, and say so."""
        before = self.session.state
        self.session = replace(self.session, state=state)
        if before is not state:
            self.observed.append(
                MemberStateChanged(
                    group=self.config.group_id,
                    now=self.now,
                    member=self.session.member_id,
                    generation=self.session.generation,
                    before=before.name,
                    after=state.name,
                    reason=reason,
                )
            )

    def token(self) -> int:
        """Return a number that was not used before."""
        token = self.session.next_token
        self.session = replace(self.session, next_token=token + 1)
        return token

    def send(self, request: Message, timeout_ms: int | None = None) -> Sent:
        """Send a request, and return what to remember of it."""
        sent = Sent(self.token(), self.session.member_id, self.session.generation)
        self.sends.append(Send(sent.token, request, timeout_ms))
        return sent

    def call(
        self,
        change: Ownership,
        partitions: frozenset[TopicPartition],
        user_data: bytes | None = None,
    ) -> None:
        """Call the application; one call at a time."""
        assert self.session.callback is None
        assigned = change is Ownership.ASSIGNED
        callback = Callback(
            self.token(),
            change,
            partitions,
            self.session.assignor if assigned else "",
            self.session.generation,
            user_data,
            self.session.owned if assigned else frozenset(),
        )
        self.session = replace(self.session, callback=callback)
        self.callbacks.append(callback)

    def start(self, deadline: MemberDeadline, delay_ms: int) -> None:
        """Let a deadline run from now."""
        deadlines = self.session.deadlines.set(deadline, self.now + delay_ms)
        self.session = replace(self.session, deadlines=deadlines)

    def cancel(self, *deadlines: MemberDeadline) -> None:
        """Stop deadlines, where they run."""
        left = self.session.deadlines
        for deadline in deadlines:
            left = left.cancel(deadline)
        self.session = replace(self.session, deadlines=left)

    def effects(self) -> Effects[MemberSession]:
        """Return what the event leads to."""
        return Effects(
            self.session,
            observed=tuple(self.observed),
            sends=tuple(self.sends),
            callbacks=tuple(self.callbacks),
            jobs=tuple(self.jobs),
            find_coordinator=self.find_coordinator,
            raised=tuple(self.raised),
        )
