"""What members of all protocols know alike, and what one event does to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from enum import Enum
from typing import Generic, TypeVar

from kohort.errors import KohortError
from kohort.group.effects import Callback, Effects, MemberJob, Send
from kohort.group.events import GroupEvent, MemberStateChanged, Ownership, OwnershipChanged
from kohort.group.machine import Deadlines
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import MemberDeadline
from kohort.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(ABC):
    """The part of what a member knows that is the same in every protocol; a value.

    Attributes:
        state: Its state, of the protocol's own.
        member_id: Its id in the group; empty when it has none.
        topics: What the application subscribes to.
        coordinator_known: Whether requests can be sent.
        looking_up: Whether the shell looks for the coordinator.
        callback: The call into the application that has not returned.
        failures: How many attempts to join or to find the coordinator failed in a row.
        next_token: The next number to give to a request, callback or job.
        deadlines: What is due when.
    """

    state: Enum
    member_id: str = ""
    topics: frozenset[str] = frozenset()
    coordinator_known: bool = False
    looking_up: bool = False
    callback: Callback | None = None
    failures: int = 0
    next_token: int = 1
    deadlines: Deadlines[MemberDeadline] = field(default_factory=Deadlines)

    @property
    @abstractmethod
    def generation(self) -> int:
        """The generation or epoch that it is a member in, -1 when it is in none."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request on its way, and who the member was when it was sent."""

    token: int
    member_id: str
    generation: int


S = TypeVar("S", bound=Session)


@dataclass(slots=True)
class MemberDecision(Generic[S]):
    """What one event does to a member, while its handlers run.

    Attributes:
        config: Settings.
        session: The member as it will be.
        now: Time of the event in milliseconds.
        sends: Requests to send.
        callbacks: Calls into the application.
        jobs: Work for the assignors.
        find_coordinator: Whether to look for the coordinator.
        raised: Errors for the application.
        observed: What happened.
        late_ms: How long ago the deadline that is acted on was due.
    """

    config: MemberConfig
    session: S
    now: int
    sends: list[Send] = field(default_factory=list)
    callbacks: list[Callback] = field(default_factory=list)
    jobs: list[MemberJob] = field(default_factory=list)
    find_coordinator: bool = False
    raised: list[KohortError] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)
    late_ms: int = 0

    def enter(self, state: Enum, reason: str = "") -> None:
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

    def say_told(self, callback: Callback, change: Ownership) -> None:
        """Report that the application was told of a change, and what it was."""
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
        """Let a deadline run from now."""
        deadlines = self.session.deadlines.set(deadline, self.now + delay_ms)
        self.session = replace(self.session, deadlines=deadlines)

    def runs(self, deadline: MemberDeadline) -> bool:
        """Whether a deadline runs."""
        return self.session.deadlines.get(deadline) is not None

    def cancel(self, *deadlines: MemberDeadline) -> None:
        """Stop deadlines, where they run."""
        running = left = self.session.deadlines
        for deadline in deadlines:
            left = left.cancel(deadline)
        if left is not running:
            self.session = replace(self.session, deadlines=left)

    def effects(self) -> Effects[S]:
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
