"""A consumer of a draft group: the public interface of the machine.

It is driven like the member of a classic group, see `kohort.group.member.classic.machine`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.errors import LocalProtocolError
from kohort.group.member import commits
from kohort.group.member.config import MemberConfig
from kohort.group.member.draft.session import (
    DraftMemberDecision,
    DraftMemberSession,
    DraftMemberState,
    heartbeat_interval_ms,
)
from kohort.group.member.draft.table import DRAFT_MEMBER
from kohort.group.member.events import HeartbeatAnswered, RequestFailed
from kohort.group.member.machine import MemberMachine
from kohort.group.member.session import Sent
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.wire.codec.schema import Message
from kohort.wire.messages.draft import DraftHeartbeatResponse, DraftJoinGroupResponse
from kohort.wire.messages.offsets import OffsetCommitRequest

__all__ = ["DraftMember", "DraftMemberSession", "DraftMemberState"]


class DraftMember(MemberMachine[DraftMemberSession, DraftMemberDecision]):
    """One consumer of one group."""

    rebalancing = (DraftMemberState.DISCOVER_COORDINATOR, DraftMemberState.STOPPED_CONSUMPTION)

    def __init__(self, config: MemberConfig, host: str) -> None:
        """Make a consumer without a subscription.

        Args:
            config: Its settings.
            host: Where it runs; becomes part of its id.
        """
        super().__init__(config, DraftMemberSession(), DRAFT_MEMBER.run)
        self.host = host

    # ------------------------------------------------------------------------------- what it knows

    @property
    def is_closed(self) -> bool:
        """Return whether it has left for good."""
        return self.session.state is DraftMemberState.CLOSED

    @property
    def heartbeat_interval_ms(self) -> int:
        """Return the time between heartbeats, in milliseconds (D25)."""
        return heartbeat_interval_ms(self.config)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """Return the partitions that are assigned to it and that it has not given up."""
        return self.session.owned

    @property
    def fetchable(self) -> frozenset[TopicPartition]:
        """Return the partitions to read now, even while the coordinator is unknown (D23)."""
        session = self.session
        consumes = session.state in (
            DraftMemberState.PART_OF_GROUP,
            DraftMemberState.REDISCOVER_COORDINATOR,
        )
        return session.owned if consumes and session.callback is None else frozenset()

    # ------------------------------------------------------------------------------------- commits

    def commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetCommitRequest:
        """Return the request that stores positions under this consumer's id (D6).

        Raises:
            LocalProtocolError: It is not part of a group.
        """
        if not self.session.is_member:
            raise LocalProtocolError("not a member of the group: nothing can be committed")
        return commits.commit_request(self.config.group_id, self.identity, None, offsets)

    # -------------------------------------------------------------------------------------- driving

    def _begin(self, now: int) -> DraftMemberDecision:
        return DraftMemberDecision(self.config, self.session, now, host=self.host)

    def _answered(self, _sent: Sent, response: Message) -> object:
        if isinstance(response, DraftHeartbeatResponse):
            return HeartbeatAnswered(response.error_code)
        return response

    def _failed(self, sent: Sent, event: RequestFailed) -> object:
        """Treat a request that no retry can complete as refused."""
        code = event.error_code
        if code is None:
            return super()._failed(sent, event)
        if sent is self.session.heartbeat:
            return HeartbeatAnswered(code)
        return DraftJoinGroupResponse(error_code=code, group_id=self.config.group_id)
