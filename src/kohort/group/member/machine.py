"""What the machines of all members have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from kohort.group.effects import Callback, Effects
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import CallbackDone, MemberDeadline, MemberEvent, StaleReport
from kohort.group.member.session import MemberDecision, Session
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.messages.offsets import OffsetCommitRequest

S = TypeVar("S", bound=Session)


class MemberMachine(ABC, Generic[S]):
    """One member of one group, whatever protocol it speaks.

    Attributes:
        config: Its settings.
        session: All it knows; a value.
    """

    def __init__(self, config: MemberConfig, session: S) -> None:
        """Make a member.

        Args:
            config: Its settings.
            session: What it knows at first.
        """
        self.config = config
        self.session = session

    @property
    def member_id(self) -> str:
        """Its id in the group, empty when it has none."""
        return self.session.member_id

    @property
    def generation_id(self) -> int:
        """Present generation or member epoch, -1 when it is in none."""
        return self.session.generation

    @property
    def identity(self) -> CommitIdentity:
        """As whom a commit is made now."""
        return CommitIdentity(self.session.member_id, self.session.generation)

    @property
    @abstractmethod
    def state(self) -> Enum:
        """Its state."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether it has left for good, and the application has nothing more to be told."""

    @property
    @abstractmethod
    def heartbeat_interval_ms(self) -> int:
        """Time between heartbeats, in milliseconds."""

    @property
    @abstractmethod
    def assigned(self) -> frozenset[TopicPartition]:
        """Partitions that it was given and has not given up."""

    @property
    @abstractmethod
    def fetchable(self) -> frozenset[TopicPartition]:
        """Partitions that may be read now."""

    @property
    def group_topics(self) -> frozenset[str]:
        """Topics to watch in the group's name: none, unless it is the leader of a classic group."""
        return frozenset()

    def tell_assignor(self, callback: Callback) -> None:
        """Have its assignor, if it has one, take note of an assignment (L5)."""

    @abstractmethod
    def commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetCommitRequest:
        """Return the request that stores positions in its name."""

    @abstractmethod
    def commit_verdict(self, sent: CommitIdentity, error_code: int) -> CommitVerdict:
        """Say what the answer to a commit means; ask before `CommitAnswered` is decided."""

    @abstractmethod
    def decide(self, event: MemberEvent, now: int) -> Effects[S]:
        """Work out what an event leads to; change nothing."""

    def install(self, session: S) -> None:
        """Take over what effects lead to."""
        self.session = session

    def next_deadline(self) -> int | None:
        """Return the time from which on a `Tick` has something to do; None: there is nothing."""
        return self.session.deadlines.earliest


def take_due(decision: MemberDecision[S]) -> MemberDeadline | None:
    """Take the earliest deadline out, if it is due; the member acts on it."""
    earliest = decision.session.deadlines.next()
    if earliest is None or earliest[0] > decision.now:
        return None
    decision.cancel(earliest[1])
    decision.late_ms = decision.now - earliest[0]
    return earliest[1]


def told(decision: MemberDecision[S], event: CallbackDone) -> CallbackDone | StaleReport:
    """Return what the end of a call means: that of one that was made, or of none."""
    callback = decision.session.callback
    known = callback is not None and callback.token == event.token
    return event if known else StaleReport(event.token)
