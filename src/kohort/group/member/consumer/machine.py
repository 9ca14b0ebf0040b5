"""A member of a consumer group (KIP-848): the public interface of the machine.

It is driven like `kohort.group.member.classic.machine` and has the same interface. The coordinator
assigns partitions by topic id, so a shell also asks `unnamed` for topics without a known name,
looks the names up, and reports them with `TopicsNamed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from kohort.errors import CommitFailedError, ErrorCode
from kohort.group.assignors.interface import Assignor
from kohort.group.member import commits, lookup
from kohort.group.member.config import MemberConfig
from kohort.group.member.consumer import client_assignors, rhythm
from kohort.group.member.consumer.calls import LIVE
from kohort.group.member.consumer.client_assignors import ComputationLost
from kohort.group.member.consumer.session import (
    NOT_JOINED,
    ConsumerMemberDecision,
    ConsumerMemberSession,
    ConsumerMemberState,
    GoodByeAnswered,
    HeartbeatReady,
)
from kohort.group.member.consumer.table import CONSUMER_MEMBER
from kohort.group.member.events import MemberEvent, RequestFailed, ResponseArrived, StaleReport
from kohort.group.member.machine import MemberMachine
from kohort.group.member.session import Sent
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatResponse
from kohort.wire.messages.offsets import OffsetCommitRequest

__all__ = ["ConsumerMember", "ConsumerMemberSession", "ConsumerMemberState"]

_BEATING = (*LIVE, ConsumerMemberState.LEAVING)
_OUT = (ConsumerMemberState.UNSUBSCRIBED, ConsumerMemberState.STALE, ConsumerMemberState.FATAL)


class ConsumerMember(MemberMachine[ConsumerMemberSession, ConsumerMemberDecision]):
    """One member of one group."""

    def __init__(
        self,
        config: MemberConfig,
        member_id: str,
        first_token: int = 1,
        assignors: Sequence[Assignor] = (),
    ) -> None:
        """Make a member without a subscription.

        Args:
            config: Its settings.
            member_id: Its permanent id, never used before (KIP-1082).
            first_token: The number of its first request or callback.
            assignors: Assignors that it can run itself, in order of preference (K60).

        Raises:
            ConfigError: Two assignors have one name, or a name or version cannot be sent.
        """
        session = ConsumerMemberSession(member_id=member_id, next_token=first_token)
        super().__init__(config, session, CONSUMER_MEMBER.run, assignors)
        # The session's topic ids as names, cached because they are needed for every record read.
        self._owned: frozenset[TopicPartition] = frozenset()
        self._unnamed: frozenset[UUID] = frozenset()

    # ------------------------------------------------------------------------------- what it knows

    @property
    def is_closed(self) -> bool:
        """Return whether it was closed and no callback is pending."""
        session = self.session
        return session.closing is not None and session.callback is None and session.state in _OUT

    @property
    def is_failed(self) -> bool:
        """Return whether it will never be a member again (L36)."""
        return self.session.state is ConsumerMemberState.FATAL

    @property
    def heartbeat_interval_ms(self) -> int:
        """Return the time between heartbeats, in milliseconds."""
        return self.session.interval_ms or self.config.heartbeat_interval_ms

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned to it and that it has not given up."""
        adding = self.session.adding
        return self._owned | self.session.named(adding) if adding else self._owned

    @property
    def fetchable(self) -> frozenset[TopicPartition]:
        """Return the partitions to read now, without those in a running listener call (L32)."""
        session = self.session
        if not session.is_member:
            return frozenset()
        callback = session.callback
        held = callback.partitions if callback else frozenset()
        return self._owned - held if held else self._owned

    @property
    def unnamed(self) -> frozenset[UUID]:
        """Return the topics whose names it needs before it can take their partitions."""
        return self._unnamed

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

    # -------------------------------------------------------------------------------------- driving

    def _begin(self, now: int) -> ConsumerMemberDecision:
        return ConsumerMemberDecision(self.config, self.session, now, assignors=self._offers)

    def _trigger(self, decision: ConsumerMemberDecision, event: MemberEvent) -> object | None:
        """As for every member, but answers for its computation go only to the computation (K61)."""
        match event:
            case ResponseArrived() if client_assignors.is_awaited(self.session, event.token):
                return event.response
            case RequestFailed() if client_assignors.is_awaited(self.session, event.token):
                return ComputationLost(event.cause)
        return super()._trigger(decision, event)

    def _answered(self, sent: Sent, response: Message) -> object:
        if not isinstance(response, ConsumerGroupHeartbeatResponse):
            return StaleReport(sent.token)
        if sent.generation < NOT_JOINED:
            return self._good_bye_over(sent)
        if sent.generation != self.session.epoch:
            return StaleReport(sent.token)  # an answer for an outdated id or epoch
        return response

    def _failed(self, sent: Sent, event: RequestFailed) -> object:
        code = event.error_code
        if code is not None:
            answer = ConsumerGroupHeartbeatResponse(error_code=code, error_message=event.cause)
            return self._answered(sent, answer)
        if sent.generation < NOT_JOINED:
            return self._good_bye_over(sent)
        return super()._failed(sent, event)

    def _good_bye_over(self, sent: Sent) -> object:
        """L37: a member that does not wait for the answer has left, and may have rejoined."""
        waits = self.session.state is ConsumerMemberState.LEAVING
        return GoodByeAnswered() if waits else StaleReport(sent.token)

    def _awaits_job(self, token: int) -> bool:
        session = self.session
        return token == session.asking or client_assignors.is_awaited(session, token)

    def _conclude(self, decision: ConsumerMemberDecision) -> None:
        """L31: the only place from which heartbeats are sent."""
        session = decision.session
        if not session.is_due or session.state not in _BEATING:
            return
        if not session.coordinator_known:
            lookup.look_up(decision)
        elif rhythm.can_beat(decision):
            if session.unasked:
                client_assignors.ask(decision)
            if not client_assignors.holds_back(decision):
                self._run(decision, HeartbeatReady, HeartbeatReady())

    def install(self, session: ConsumerMemberSession) -> None:
        """Install the session of a decision."""
        before, self.session = self.session, session
        renamed = session.names is not before.names
        if renamed or session.owned is not before.owned:
            self._owned = session.named(session.owned)
        if renamed or session.target is not before.target:
            self._unnamed = session.unnamed
