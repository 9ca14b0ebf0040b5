"""The common part of all members' machines."""

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
        rebalancing: The states of a running join, which can make a commit fail.
        config: Its settings.
        session: Its whole state; a value.
        assignors: Its assignors by name, in order of preference.
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
            session: Its initial state.
            run: Runs a trigger through the table of its protocol (`Table.run`).
            assignors: The assignors that it can run, in order of preference.

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
        """Return its id in the group, empty when it has none."""
        return self.session.member_id

    @property
    def generation_id(self) -> int:
        """Return its generation or member epoch, -1 when it has none."""
        return self.session.generation

    @property
    def identity(self) -> CommitIdentity:
        """Return the identity for a commit made now."""
        return CommitIdentity(self.session.member_id, self.session.generation)

    @property
    def state(self) -> Enum:
        """Return its state."""
        return self.session.state

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Return whether it has left for good and no callback is pending."""

    @property
    @abstractmethod
    def heartbeat_interval_ms(self) -> int:
        """Return the time between heartbeats, in milliseconds."""

    @property
    @abstractmethod
    def assigned(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned to it and that it has not given up."""

    @property
    @abstractmethod
    def fetchable(self) -> frozenset[TopicPartition]:
        """Return the partitions that may be read now."""

    @property
    def group_topics(self) -> frozenset[str]:
        """Topics to watch for the group: none, unless the member leads a classic group."""
        return frozenset()

    @property
    def unnamed(self) -> frozenset[UUID]:
        """Topics known only by id (KIP-848), until `TopicsNamed` brings their names."""
        return self.session.unnamed

    def tell_assignor(self, callback: Callback) -> None:
        """Pass an assignment to the assignor that computed it, if this member has it (L5).

        Args:
            callback: The call into the application that is about to be made; `ASSIGNED`.
            callback: The call that the application gets next.

        Raises:
            Exception: Any error of the assignor; like an error of the listener, it changes
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
        """Return the request that stores positions under its identity.

        Args:
            offsets: The positions to store.
        """

    def commit_verdict(self, sent: CommitIdentity, error_code: int) -> CommitVerdict:
        """Return how to react to a commit's answer; call this before deciding `CommitAnswered`.

        Args:
            sent: The identity with which the commit was made.
            error_code: The error code of the answer (L11, L37).
            sent: Who sent the commit, from `commit_request`.
            error_code: Kafka's number of the error in the answer.
        """
        rebalancing = self.session.state in self.rebalancing
        return verdict(error_code, sent, self.identity, rebalancing=rebalancing)

    # -------------------------------------------------------------------------------------- driving

    def decide(self, event: MemberEvent, now: int) -> Effects[S]:
        """Work out the effects of an event; change nothing.

        Args:
            event: The event.
            now: Time in milliseconds, of a clock that never goes back.

        Raises:
            LocalProtocolError: The present state does not allow this call of the application.
        """
        decision = self._begin(now)
        trigger = self._trigger(decision, event)
        if trigger is not None:
            self._run(decision, type(trigger), trigger)
        self._conclude(decision)
        return cast("Effects[S]", decision.effects())  # of the initial session

    def _trigger(self, decision: D, event: MemberEvent) -> object | None:
        """Return the table's trigger for an event; None: there is none, since nothing is due."""
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
        """Return the decision for an event."""

    def _conclude(self, decision: D) -> None:
        """Do the work that follows every event."""

    def _forget_sent(self, decision: D, token: int) -> Sent | None:
        """Remove a request that was answered or will get no answer.

        Returns:
            The request as it was sent; None: no answer is expected.
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
        """Return the table's trigger for the answer to a request."""

    def _failed(self, _sent: Sent, event: RequestFailed) -> object:
        """Return the table's trigger for the failure of a request."""
        return CoordinatorLost(event.cause)

    def _awaits_job(self, _token: int) -> bool:
        """Return whether the machine still waits for a job."""
        return False

    def install(self, session: S) -> None:
        """Install the session of a decision.

        Args:
            session: The session of the effects.
        """
        self.session = session

    def next_deadline(self) -> int | None:
        """Return the time of the next `Tick` that has an effect; None: there is none."""
        return self.session.deadlines.earliest


def _take_due(decision: MemberDecision[Session]) -> MemberDeadline | None:
    """Remove and return the earliest deadline if it is due."""
    earliest = decision.session.deadlines.next()
    if earliest is None or earliest[0] > decision.now:
        return None
    decision.cancel(earliest[1])
    decision.late_ms = decision.now - earliest[0]
    return earliest[1]
