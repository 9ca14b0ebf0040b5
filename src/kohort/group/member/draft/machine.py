"""A consumer of a draft group: the face of the machine.

It is driven like the member of a classic group, see `kohort.group.member.classic.machine`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.errors import LocalProtocolError
from kohort.group.effects import Effects
from kohort.group.member import commits
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.config import MemberConfig
from kohort.group.member.draft.session import (
    DraftMemberDecision,
    DraftMemberSession,
    DraftMemberState,
    heartbeat_interval_ms,
)
from kohort.group.member.draft.table import DRAFT_MEMBER
from kohort.group.member.events import (
    CallbackDone,
    CoordinatorLost,
    HeartbeatAnswered,
    JobDone,
    MemberEvent,
    RequestFailed,
    ResponseArrived,
    StaleReport,
    Tick,
)
from kohort.group.member.machine import MemberMachine, take_due, told
from kohort.group.member.session import Sent
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.messages.draft import DraftHeartbeatResponse, DraftJoinGroupResponse
from kohort.wire.messages.offsets import OffsetCommitRequest

__all__ = ["DraftMember", "DraftMemberSession", "DraftMemberState"]

_REBALANCING = (DraftMemberState.DISCOVER_COORDINATOR, DraftMemberState.STOPPED_CONSUMPTION)


class DraftMember(MemberMachine[DraftMemberSession]):
    """One consumer of one group."""

    def __init__(self, config: MemberConfig, host: str) -> None:
        """Make a consumer that wants nothing yet.

        Args:
            config: Its settings.
            host: Where it runs; becomes part of its id.
        """
        super().__init__(config, DraftMemberSession())
        self.host = host

    # ------------------------------------------------------------------------------- what it knows

    @property
    def state(self) -> DraftMemberState:
        """Its state."""
        return self.session.state

    @property
    def is_closed(self) -> bool:
        """Whether it has left for good."""
        return self.session.state is DraftMemberState.CLOSED

    @property
    def heartbeat_interval_ms(self) -> int:
        """Time between heartbeats, in milliseconds (D25)."""
        return heartbeat_interval_ms(self.config)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """Partitions that it was given and has not given up."""
        return self.session.owned

    @property
    def fetchable(self) -> frozenset[TopicPartition]:
        """Partitions that may be read now: also while the coordinator is not known (D23)."""
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

    def commit_verdict(self, sent: CommitIdentity, error_code: int) -> CommitVerdict:
        """Say what the answer to a commit means; ask before `CommitAnswered` is decided."""
        rebalancing = self.session.state in _REBALANCING
        return commits.verdict(error_code, sent, self.identity, rebalancing=rebalancing)

    # -------------------------------------------------------------------------------------- driving

    def decide(self, event: MemberEvent, now: int) -> Effects[DraftMemberSession]:
        """Work out what an event leads to; change nothing.

        Args:
            event: What happened.
            now: Time in milliseconds, of a clock that never goes back.

        Raises:
            LocalProtocolError: A call of the application that the present state does not allow.
        """
        change = DraftMemberDecision(self.config, self.session, now, host=self.host)
        _run(change, event)
        return change.effects()


def _run(decision: DraftMemberDecision, event: MemberEvent) -> None:
    """Say in the table's words what happened, and let it act."""
    match event:
        case Tick():
            due = take_due(decision)
            if due is not None:
                _put(decision, due)
        case ResponseArrived():
            _answer(decision, event)
        case RequestFailed():
            _fail(decision, event)
        case CallbackDone():
            _put(decision, told(decision, event))
        case JobDone():
            _put(decision, StaleReport(event.token))  # nobody leads
        case _:
            _put(decision, event)


def _put(decision: DraftMemberDecision, event: object) -> None:
    DRAFT_MEMBER.run(decision, type(event), event)


def _answer(decision: DraftMemberDecision, event: ResponseArrived) -> None:
    sent = _forget_sent(decision, event.token)
    if sent is None:
        _put(decision, StaleReport(event.token))
    elif isinstance(event.response, DraftHeartbeatResponse):
        _put(decision, HeartbeatAnswered(event.response.error_code))
    else:
        _put(decision, event.response)


def _fail(decision: DraftMemberDecision, event: RequestFailed) -> None:
    """A request that no later attempt can bring through is as good as refused."""
    beats, code = decision.session.heartbeat, event.error_code
    sent = _forget_sent(decision, event.token)
    if sent is None:
        _put(decision, StaleReport(event.token))
    elif code is None:
        _put(decision, CoordinatorLost(event.cause))
    elif sent is beats:
        _put(decision, HeartbeatAnswered(code))
    else:
        _put(decision, DraftJoinGroupResponse(error_code=code, group_id=decision.config.group_id))


def _forget_sent(decision: DraftMemberDecision, token: int) -> Sent | None:
    """Note that a request is answered, and return it; None: nobody waits for it."""
    session = decision.session
    if session.heartbeat is not None and session.heartbeat.token == token:
        decision.session = replace(session, heartbeat=None)
        return session.heartbeat
    if session.request is not None and session.request.token == token:
        decision.session = replace(session, request=None)
        return session.request
    return None
