"""A member of a consumer group (KIP-848): the face of the machine.

It is driven like `kohort.group.member.classic.machine`, whose face it has. One thing more: it is
given partitions by topic id, so a shell asks `unnamed` for topics whose names it is to find out,
and reports them with `TopicsNamed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from kohort.errors import CommitFailedError, ErrorCode
from kohort.group.assignors.interface import Assignor
from kohort.group.effects import Callback, Effects
from kohort.group.member import commits, lookup
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer import client_assignors, coordinator
from kohort.group.member.consumer.calls import LIVE
from kohort.group.member.consumer.client_assignors import ComputationLost
from kohort.group.member.consumer.events import GoodByeAnswered, HeartbeatReady
from kohort.group.member.consumer.session import (
    NOT_JOINED,
    ConsumerMemberDecision,
    MemberSession,
    MemberState,
    Sent,
)
from kohort.group.member.consumer.table import CONSUMER_MEMBER
from kohort.group.member.events import (
    CallbackDone,
    CoordinatorLost,
    JobDone,
    MemberEvent,
    RequestFailed,
    ResponseArrived,
    StaleReport,
    Tick,
)
from kohort.group.member.machine import MemberMachine, take_due, told
from kohort.group.member.offers import offered
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse
from kohort.wire.messages.offsets import OffsetCommitRequest

__all__ = ["ConsumerMember", "MemberSession", "MemberState"]

_BEATING = (*LIVE, MemberState.LEAVING)
_OUT = (MemberState.UNSUBSCRIBED, MemberState.STALE, MemberState.FATAL)


class ConsumerMember(MemberMachine[MemberSession]):
    """One member of one group."""

    def __init__(
        self,
        config: MemberConfig,
        member_id: str,
        first_token: int = 1,
        assignors: Sequence[Assignor] = (),
    ) -> None:
        """Make a member that wants nothing yet.

        Args:
            config: Its settings.
            member_id: Its id for as long as it exists, never used before (KIP-1082).
            first_token: The first number it gives to a request or callback.
            assignors: Assignors that it can run itself, the best liked first (K60).

        Raises:
            ConfigError: Two assignors have one name, or a name or version cannot be sent.
        """
        super().__init__(config, MemberSession(member_id=member_id, next_token=first_token))
        self._offers = offered(assignors)
        self.assignors: Mapping[str, Assignor] = {
            offer.name: each for offer, each in zip(self._offers, assignors, strict=True)
        }
        # What the session says by topic ids, by names: it is asked for with every record read.
        self._owned: frozenset[TopicPartition] = frozenset()
        self._unnamed: frozenset[UUID] = frozenset()

    # ------------------------------------------------------------------------------- what it knows

    @property
    def state(self) -> MemberState:
        """Its state."""
        return self.session.state

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, and the application has nothing more to be told."""
        session = self.session
        return session.closing is not None and session.callback is None and session.state in _OUT

    @property
    def is_failed(self) -> bool:
        """Whether it will never be a member again (L36)."""
        return self.session.state is MemberState.FATAL

    @property
    def heartbeat_interval_ms(self) -> int:
        """Time between heartbeats, in milliseconds."""
        return self.session.interval_ms or self.config.heartbeat_interval_ms

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """Partitions that it was given and has not given up."""
        adding = self.session.adding
        return self._owned | self.session.named(adding) if adding else self._owned

    @property
    def fetchable(self) -> frozenset[TopicPartition]:
        """Partitions that may be read now: not those that the application is told about (L32)."""
        session = self.session
        if not session.is_member:
            return frozenset()
        callback = session.callback
        held = callback.partitions if callback else frozenset()
        return self._owned - held if held else self._owned

    @property
    def unnamed(self) -> frozenset[UUID]:
        """Topics whose names it has to learn before it can take their partitions."""
        return self._unnamed

    def tell_assignor(self, callback: Callback) -> None:
        """Have the assignor take note of an assignment, if it was one of the member's own (L5).

        Raises:
            Exception: Whatever the assignor raises; it changes nothing.
        """
        config, member_id = self.config, self.session.member_id
        client_assignors.tell(self.assignors, callback, config, member_id)

    # ------------------------------------------------------------------------------------- commits

    def commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetCommitRequest:
        """Return the request that stores positions in this member's name (L37).

        Raises:
            CommitFailedError: It is not a member.
        """
        if not self.session.is_member:
            raise CommitFailedError(
                ErrorCode.UNKNOWN_MEMBER_ID, "not a member of the group: nothing can be committed"
            )
        return commits.commit_request(
            self.config.group_id, self.identity, self.config.group_instance_id, offsets
        )

    def commit_verdict(self, sent: CommitIdentity, error_code: int) -> CommitVerdict:
        """Say what the answer to a commit means (L37)."""
        return commits.verdict(error_code, sent, self.identity, rebalancing=False)

    # -------------------------------------------------------------------------------------- driving

    def decide(self, event: MemberEvent, now: int) -> Effects[MemberSession]:
        """Work out what an event leads to; change nothing.

        Args:
            event: What happened.
            now: Time in milliseconds, of a clock that never goes back.

        Raises:
            LocalProtocolError: A call of the application that the present state does not allow.
        """
        decision = ConsumerMemberDecision(self.config, self.session, now, assignors=self._offers)
        _run(decision, event)
        _beat_if_due(decision)
        return decision.effects()

    def install(self, session: MemberSession) -> None:
        """Take over what effects lead to."""
        before, self.session = self.session, session
        renamed = session.names is not before.names
        if renamed or session.owned is not before.owned:
            self._owned = session.named(session.owned)
        if renamed or session.target is not before.target:
            self._unnamed = session.unnamed


def _run(decision: ConsumerMemberDecision, event: MemberEvent) -> None:
    """Say in the table's words what happened, and let it act."""
    match event:
        case Tick():
            due = take_due(decision)
            if due is not None:
                _put(decision, due)
        case ResponseArrived() if client_assignors.is_awaited(decision.session, event.token):
            _put(decision, event.response)
        case RequestFailed() if client_assignors.is_awaited(decision.session, event.token):
            _put(decision, ComputationLost(event.cause))
        case JobDone():
            known = client_assignors.is_awaited(decision.session, event.token)
            known = known or client_assignors.is_said(decision, event)
            _put(decision, event if known else StaleReport(event.token))
        case ResponseArrived():
            sent = _forget_sent(decision, event.token)
            if sent is None or not isinstance(event.response, ConsumerGroupHeartbeatResponse):
                _put(decision, StaleReport(event.token))
            else:
                _answer(decision, sent, event.response)
        case RequestFailed():
            _fail(decision, event)
        case CallbackDone():
            _put(decision, told(decision, event))
        case _:
            _put(decision, event)


def _put(decision: ConsumerMemberDecision, event: object) -> None:
    CONSUMER_MEMBER.run(decision, type(event), event)


def _beat_if_due(decision: ConsumerMemberDecision) -> None:
    """L31: the one place from where heartbeats go out."""
    session = decision.session
    if not session.is_due or session.state not in _BEATING:
        return
    if not session.coordinator_known:
        lookup.look_up(decision)
    elif coordinator.can_beat(decision):
        if session.unasked:
            client_assignors.ask(decision)
        if not client_assignors.holds_back(decision):
            _put(decision, HeartbeatReady())


def _answer(
    decision: ConsumerMemberDecision, sent: Sent, answer: ConsumerGroupHeartbeatResponse
) -> None:
    if sent.epoch < NOT_JOINED:
        _end_good_bye(decision, sent)
    elif sent.epoch != decision.session.epoch:
        _put(decision, StaleReport(sent.token))  # it answers somebody that we are not any more
    else:
        _put(decision, answer)


def _end_good_bye(decision: ConsumerMemberDecision, sent: Sent) -> None:
    """L37: whoever does not wait for it is out already, and maybe back."""
    waits = decision.state is MemberState.LEAVING
    _put(decision, GoodByeAnswered() if waits else StaleReport(sent.token))


def _fail(decision: ConsumerMemberDecision, event: RequestFailed) -> None:
    sent = _forget_sent(decision, event.token)
    if sent is None:
        _put(decision, StaleReport(event.token))
    elif event.error_code is not None:
        answer = ConsumerGroupHeartbeatResponse(
            error_code=event.error_code, error_message=event.cause
        )
        _answer(decision, sent, answer)
    elif sent.epoch < NOT_JOINED:
        _end_good_bye(decision, sent)
    else:
        _put(decision, CoordinatorLost(event.cause))


def _forget_sent(decision: ConsumerMemberDecision, token: int) -> Sent | None:
    """Note that the heartbeat on its way is answered; None: nobody waits for this answer."""
    sent = decision.session.heartbeat
    if sent is None or sent.token != token:
        return None
    decision.session = replace(decision.session, heartbeat=None)
    return sent
