"""The common session of members of all protocols, and the decision that one event works on."""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct, field

from kohort.errors import KohortError
from kohort.group.effects import Callback, Effects, MemberJob, Send
from kohort.group.events import GroupEvent, MemberStateChanged, Ownership, OwnershipChanged
from kohort.group.machine import Deadlines
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import MemberDeadline
from kohort.group.subscription import NO_GENERATION
from kohort.values import replace
from kohort.wire.codec.schema import Message


class Sent(Struct, frozen=True):
    """A request in flight, and the member's identity when it was sent.

    Attributes:
        token: Its number.
        member_id: The member's id.
        generation: The generation or epoch in it.
    """

    token: int
    member_id: str
    generation: int


class Session(Struct, frozen=True, kw_only=True):
    """The part of a member's session that is the same in every protocol; a value.

    Attributes:
        state: Its state, of its protocol's enum.
        member_id: Its id in the group; empty when it has none.
        topics: The topics the application subscribes to.
        request: The request in flight other than a heartbeat, if the protocol has any.
        heartbeat: The heartbeat in flight.
        coordinator_known: Whether requests can be sent.
        looking_up: Whether the shell looks for the coordinator.
        callback: The call into the application that has not returned yet.
        failures: Number of consecutive failures to join or to find the coordinator.
        next_token: The next number to give to a request, callback or job.
        deadlines: The running deadlines and their times.
    """

    state: Enum
    member_id: str = ""
    topics: frozenset[str] = frozenset()
    request: Sent | None = None
    heartbeat: Sent | None = None
    coordinator_known: bool = False
    looking_up: bool = False
    callback: Callback | None = None
    failures: int = 0
    next_token: int = 1
    deadlines: Deadlines[MemberDeadline] = field(default_factory=Deadlines)

    @property
    @abstractmethod
    def generation(self) -> int:
        """Return its generation or epoch, -1 when it has none."""

    @property
    def is_member(self) -> bool:
        """Return whether the member has a generation or epoch, as far as it knows."""
        return bool(self.member_id) and self.generation != NO_GENERATION

    @property
    def unnamed(self) -> frozenset[UUID]:
        """Topics known only by id (KIP-848), until `TopicsNamed` brings their names."""
        return frozenset()

    @property
    def awaited(self) -> tuple[int, ...]:
        """Return the tokens of the requests whose answers it waits for."""
        return tuple(sent.token for sent in (self.request, self.heartbeat) if sent is not None)

    @property
    def holds_its_place(self) -> bool:
        """Return whether its partitions stay its own until it has released them."""
        return self.is_member


def revoked_or_lost(session: Session) -> Ownership:
    """Return whether partitions that the application gives up now are revoked or lost.

    They are *revoked* while the member is in the group: the coordinator assigns them to no other
    member before they are released, so the application can still commit. They are *lost* once the
    member was removed, has left or has failed: another member may read them already, and a commit
    would be refused. A classic member checks again when the call has ended: if it was removed in
    between, the partitions have become lost.
    """
    return Ownership.REVOKED if session.holds_its_place else Ownership.LOST


S_co = TypeVar("S_co", bound=Session, covariant=True)


class MemberDecision(Struct, Generic[S_co]):
    """The effects of one event on a member, while its handlers run.

    Attributes:
        config: Settings.
        session: The member as it will be.
        now: Time of the event in milliseconds.
        sends: Requests to send.
        callbacks: Calls into the application.
        jobs: Work for the assignors.
        find_coordinator: Whether to look for the coordinator.
        raised: Errors for the application.
        observed: Events to report.
        late_ms: How far past its due time the handled deadline is.
    """

    config: MemberConfig
    session: S_co
    now: int
    sends: list[Send] = field(default_factory=list)
    callbacks: list[Callback] = field(default_factory=list)
    jobs: list[MemberJob] = field(default_factory=list)
    find_coordinator: bool = False
    raised: list[KohortError] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)
    late_ms: int = 0

    @property
    def state(self) -> Enum:
        """Return the member's state."""
        return self.session.state

    def enter(self, state: Enum, reason: str = "") -> None:
        """Change the state, and report it."""
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
        """Return an unused number."""
        token = self.session.next_token
        self.session = replace(self.session, next_token=token + 1)
        return token

    def send(self, request: Message, timeout_ms: int | None = None) -> Sent:
        """Send a request, and return its entry for the session."""
        sent = Sent(self.token(), self.session.member_id, self.session.generation)
        self.sends.append(Send(sent.token, request, timeout_ms))
        return sent

    def say_told(self, callback: Callback, change: Ownership) -> None:
        """Report which change the application was notified of."""
        self.observed.append(
            OwnershipChanged(
                group=self.config.group_id,
                now=self.now,
                member=self.session.member_id,
                generation=callback.generation,
                change=change,
                partitions=callback.partitions,
            )
        )

    def start(self, deadline: MemberDeadline, delay_ms: int) -> None:
        """Start a deadline from now."""
        deadlines = self.session.deadlines.set(deadline, self.now + delay_ms)
        self.session = replace(self.session, deadlines=deadlines)

    def back_off(self, deadline: MemberDeadline) -> None:
        """Count a failure, and start a deadline for the retry.

        Each consecutive failure makes the wait longer (KIP-580).
        """
        failures = self.session.failures + 1
        self.session = replace(self.session, failures=failures)
        self.start(deadline, self.config.backoff_ms(failures))

    def runs(self, deadline: MemberDeadline) -> bool:
        """Return whether a deadline is running."""
        return self.session.deadlines.get(deadline) is not None

    def cancel(self, *deadlines: MemberDeadline) -> None:
        """Stop deadlines, if they run."""
        running = left = self.session.deadlines
        for deadline in deadlines:
            left = left.cancel(deadline)
        if left is not running:
            self.session = replace(self.session, deadlines=left)

    def effects(self) -> Effects[S_co]:
        """Return the effects of the event."""
        return Effects(
            self.session,
            observed=tuple(self.observed),
            sends=tuple(self.sends),
            callbacks=tuple(self.callbacks),
            jobs=tuple(self.jobs),
            find_coordinator=self.find_coordinator,
            raised=tuple(self.raised),
        )
