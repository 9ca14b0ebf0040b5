"""A member of a classic group: the public interface of the machine.

A shell drives it with one event at a time:

    effects = member.decide(event, now)     # changes nothing
    member.install(effects.session)

and then carries out the effects: looks the coordinator up, sends requests, queues callbacks for
the application's next poll, runs jobs, raises errors. The result of each comes back as an event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.errors import ConfigError, ErrorCode, LocalProtocolError, RebalanceInProgressError
from kohort.group.assignors.interface import (
    Assignor,
    RebalanceProtocol,
    common_protocol,
)
from kohort.group.effects import Callback
from kohort.group.member import commits
from kohort.group.member.classic.session import (
    ClassicMemberDecision,
    ClassicMemberSession,
    ClassicMemberState,
)
from kohort.group.member.classic.table import CLASSIC_MEMBER
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.config import MemberConfig
from kohort.group.member.events import HeartbeatAnswered
from kohort.group.member.machine import MemberMachine
from kohort.group.member.session import Sent
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.membership import HeartbeatResponse
from kohort.wire.messages.offsets import OffsetCommitRequest

__all__ = ["ClassicMember", "ClassicMemberSession", "ClassicMemberState"]


class ClassicMember(MemberMachine[ClassicMemberSession, ClassicMemberDecision]):
    """One member of one group."""

    rebalancing = (
        ClassicMemberState.UNJOINED,
        ClassicMemberState.PREPARING_REBALANCE,
        ClassicMemberState.COMPLETING_REBALANCE,
    )

    def __init__(self, config: MemberConfig, assignors: Sequence[Assignor]) -> None:
        """Make a member without a subscription.

        Args:
            config: Its settings.
            assignors: The assignors it offers to the group, in order of preference.

        Raises:
            ConfigError: No assignor, two with one name, a name or version of the wrong type, or no
                rebalance protocol that all of them support (L1), or different protocol types.
        """
        super().__init__(config, ClassicMemberSession(), CLASSIC_MEMBER.run, assignors)
        if not assignors:
            raise ConfigError("a member needs assignors, each with a name of its own")
        protocol = common_protocol(assignors)
        if protocol is None:
            names = ", ".join(self.assignors)
            raise ConfigError(f"no rebalance protocol is supported by all assignors: {names}")
        types = {each.protocol_type for each in assignors}
        if len(types) > 1:
            raise ConfigError(f"assignors of one member differ in protocol type: {sorted(types)}")
        self.protocol: RebalanceProtocol = protocol
        self.protocol_type = types.pop()
        self._lent: frozenset[TopicPartition] = frozenset()

    # ------------------------------------------------------------------------------- what it knows

    @property
    def is_closed(self) -> bool:
        """Return whether it has left for good."""
        return self.session.state is ClassicMemberState.CLOSED

    @property
    def heartbeat_interval_ms(self) -> int:
        """Return the time between heartbeats, in milliseconds."""
        return self.config.heartbeat_interval_ms

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned to it and that it has not given up."""
        return self.session.owned

    @property
    def fetchable(self) -> frozenset[TopicPartition]:
        """Return the partitions to read now, without those in a running listener call."""
        session = self.session
        if not session.is_member:
            return frozenset()
        return session.owned - (session.callback.partitions if session.callback else frozenset())

    @property
    def group_topics(self) -> frozenset[str]:
        """Return the topics to watch as leader; `RejoinAsked` when their partitions change (L8)."""
        return self.session.group_topics

    # ------------------------------------------------------------------------------------- commits

    def commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetCommitRequest:
        """Return the request that stores positions in this member's name (L11).

        A cooperative member can commit while the group waits for all members to join: it still
        owns its partitions, and the coordinator keeps the old generation. After the coordinator
        has answered JoinGroup, it accepts no commit until the leader has assigned partitions.

        Raises:
            LocalProtocolError: It is not a member of a generation.
            RebalanceInProgressError: A rebalance is in progress; poll, then commit.
        """
        if not self.session.is_member:
            raise LocalProtocolError("not a member of the group: nothing can be committed")
        is_joined = self.session.state is ClassicMemberState.COMPLETING_REBALANCE
        if self._is_rebalancing and (is_joined or not self._keeps_partitions):
            raise RebalanceInProgressError("poll until the rebalance is through, then commit again")
        return commits.commit_request(
            self.config.group_id, self.identity, self.config.group_instance_id, offsets
        )

    def commit_verdict(self, sent: CommitIdentity, error_code: int) -> CommitVerdict:
        """As for every member; a commit's answer may arrive before that of JoinGroup."""
        is_over = error_code == ErrorCode.ILLEGAL_GENERATION and self._is_rebalancing
        if is_over and self._keeps_partitions:
            return CommitVerdict.REBALANCE_IN_PROGRESS
        return super().commit_verdict(sent, error_code)

    @property
    def _is_rebalancing(self) -> bool:
        return self.session.state in self.rebalancing

    @property
    def _keeps_partitions(self) -> bool:
        """Return whether it keeps its partitions while it joins (KIP-429)."""
        return self.protocol is RebalanceProtocol.COOPERATIVE

    # -------------------------------------------------------------------------------------- driving

    def _begin(self, now: int) -> ClassicMemberDecision:
        return ClassicMemberDecision(
            self.config,
            self.session,
            now,
            assignors=self._offers,
            protocol=self.protocol,
            protocol_type=self.protocol_type,
            lent=self._lent,
        )

    def tell_assignor(self, callback: Callback) -> None:
        """Call the assignor as every member does, then ask it which partitions are lent (L3)."""
        self._lent = frozenset()
        super().tell_assignor(callback)
        assignor = self.assignors.get(callback.assignor)
        if assignor is not None:
            self._lent = frozenset(assignor.lent())

    def _forget_sent(self, decision: ClassicMemberDecision, token: int) -> Sent | None:
        """As for every member, except that a leaving member keeps its LeaveGroup request."""
        request = self.session.request
        if self.session.state is ClassicMemberState.LEAVING and request and request.token == token:
            return request
        return super()._forget_sent(decision, token)

    def _answered(self, _sent: Sent, response: Message) -> object:
        if isinstance(response, HeartbeatResponse):
            return HeartbeatAnswered(response.error_code)
        return response

    def _awaits_job(self, token: int) -> bool:
        job = self.session.job
        return job is not None and job.token == token
