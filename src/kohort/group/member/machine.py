"""What the machines of all members have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import ClassVar, Generic, TypeVar, cast
from uuid import UUID

from kohort.group.assignors.interface import Assignment, Assignor, GroupMetadata
from kohort.group.effects import Callback, Effects
from kohort.group.member.commits import CommitIdentity, CommitVerdict, verdict
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import (
    CallbackDone,
    CoordinatorLost,
    JobDone,
    MemberDeadline,
    MemberEvent,
    RequestFailed,
    ResponseArrived,
    StaleReport,
    Tick,
)
from kohort.group.member.offers import offered
from kohort.group.member.session import MemberDecision, Sent, Session
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.codec.schema import Message
from kohort.wire.messages.offsets import OffsetCommitRequest

S = TypeVar("S", bound=Session)
D = TypeVar("D", bound=MemberDecision[Session])


class MemberMachine(ABC, Generic[S, D]):
    """One member of one group, whatever protocol it speaks.

    Attributes:
        rebalancing: The states in which it is joining, so that a commit may fail for that alone.
        config: Its settings.
        session: All it knows; a value.
        assignors: Its assignors by name, the best liked first.
    """

    rebalancing: ClassVar[tuple[Enum, ...]] = ()

    def __init__(
        self,
        config: MemberConfig,
        session: S,
        run: Callable[[D, type[object], object], object],
        assignors: Sequence[Assignor] = (),
    ) -> None:
        """Make a member.

        Args:
            config: Its settings.
            session: What it knows at first.
            run: Puts a trigger to the table of its protocol (`Table.run`).
            assignors: The assignors that it can run, the best liked first.

        Raises:
            ConfigError: Two assignors have one name, or a name or version cannot be sent.
        """
        self.config = config
        self.session = session
        self._run = run
        self._offers = offered(assignors)
        self.assignors: Mapping[str, Assignor] = {
            offer.name: each for offer, each in zip(self._offers, assignors, strict=True)
        }

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
    def state(self) -> Enum:
        """Its state."""
        return self.session.state

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

    @property
    def unnamed(self) -> frozenset[UUID]:
        """Topics that it knows by id only (KIP-848), until `TopicsNamed` brings their names."""
        return self.session.unnamed

    def tell_assignor(self, callback: Callback) -> None:
        """Have the assignor that made an assignment take note of it, if it is one of its own (L5).

        Args:
            callback: The call into the application that is about to be made; `ASSIGNED`.
            callback: The call that the application gets next.

        Raises:
            Exception: Whatever the assignor raises; like an error of the listener it changes
                nothing (L6).
        """
        assignor = self.assignors.get(callback.assignor)
        if assignor is None:
            return
        metadata = GroupMetadata(
            group_id=self.config.group_id,
            generation_id=callback.generation,
            member_id=self.session.member_id,
            group_instance_id=self.config.group_instance_id,
        )
        assignor.on_assignment(Assignment(callback.assignment, callback.user_data), metadata)

    @abstractmethod
    def commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetCommitRequest:
        """Return the request that stores positions in its name.

        Args:
            offsets: The positions to store.
        """

    def commit_verdict(self, sent: CommitIdentity, error_code: int) -> CommitVerdict:
        """Say what the answer to a commit means; ask before `CommitAnswered` is decided.

        Args:
            sent: As whom the commit was made.
            error_code: What the coordinator answered (L11, L37).
            sent: Who sent the commit, from `commit_request`.
            error_code: Kafka's number of the error in the answer.
        """
        rebalancing = self.session.state in self.rebalancing
        return verdict(error_code, sent, self.identity, rebalancing=rebalancing)

    # -------------------------------------------------------------------------------------- driving

    def decide(self, event: MemberEvent, now: int) -> Effects[S]:
        """Work out what an event leads to; change nothing.

        Args:
            event: What happened.
            now: Time in milliseconds, of a clock that never goes back.

        Raises:
            LocalProtocolError: A call of the application that the present state does not allow.
        """
        decision = self._begin(now)
        trigger = self._trigger(decision, event)
        if trigger is not None:
            self._run(decision, type(trigger), trigger)
        self._conclude(decision)
        return cast("Effects[S]", decision.effects())  # of the session that it began with

    def _trigger(self, decision: D, event: MemberEvent) -> object | None:
        """Return what the table calls an event; None: nothing is due."""
        match event:
            case Tick():
                return _take_due(decision)
            case ResponseArrived() | RequestFailed():
                sent = self._forget_sent(decision, event.token)
                if sent is None:
                    return StaleReport(event.token)
                if isinstance(event, RequestFailed):
                    return self._failed(sent, event)
                return self._answered(sent, event.response)
            case CallbackDone():
                callback = decision.session.callback
                known = callback is not None and callback.token == event.token
            case JobDone():
                known = self._awaits_job(event.token)
            case _:
                return event
        return event if known else StaleReport(event.token)

    @abstractmethod
    def _begin(self, now: int) -> D:
        """Return the decision that an event is put to."""

    def _conclude(self, decision: D) -> None:
        """Do what follows every event."""

    def _forget_sent(self, decision: D, token: int) -> Sent | None:
        """Note that a request has its answer, or will get none.

        Returns:
            What was remembered of it; None: no answer is waited for.
        """
        session = decision.session
        if (sent := session.heartbeat) is not None and sent.token == token:
            decision.session = replace(session, heartbeat=None)
            return sent
        if (sent := session.request) is not None and sent.token == token:
            decision.session = replace(session, request=None)
            return sent
        return None

    @abstractmethod
    def _answered(self, sent: Sent, response: Message) -> object:
        """Return what the table calls the answer to a request."""

    def _failed(self, _sent: Sent, event: RequestFailed) -> object:
        """Return what the table calls the failure of a request."""
        return CoordinatorLost(event.cause)

    def _awaits_job(self, _token: int) -> bool:
        """Whether the result of a job is still wanted."""
        return False

    def install(self, session: S) -> None:
        """Take over what effects lead to.

        Args:
            session: The session of the effects.
        """
        self.session = session

    def next_deadline(self) -> int | None:
        """Return the time from which on a `Tick` has something to do; None: there is nothing."""
        return self.session.deadlines.earliest


def _take_due(decision: MemberDecision[Session]) -> MemberDeadline | None:
    """Take the earliest deadline out, if it is due; the member acts on it."""
    earliest = decision.session.deadlines.next()
    if earliest is None or earliest[0] > decision.now:
        return None
    decision.cancel(earliest[1])
    decision.late_ms = decision.now - earliest[0]
    return earliest[1]
