"""A member of a classic group: the face of the machine.

A shell drives it with one event at a time:

    effects = member.decide(event, now)     # changes nothing
    member.install(effects.session)

and then does what the effects say: looks the coordinator up, sends requests, queues callbacks for
the application's next poll, runs jobs, raises errors. Each of them comes back as another event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.errors import ConfigError, LocalProtocolError, RebalanceInProgressError
from kohort.group.assignors.interface import (
    Assignment,
    Assignor,
    GroupMetadata,
    RebalanceProtocol,
    common_protocol,
)
from kohort.group.effects import Callback, Effects
from kohort.group.member import commits
from kohort.group.member.classic.session import ClassicMemberDecision, MemberSession, MemberState
from kohort.group.member.classic.table import CLASSIC_MEMBER
from kohort.group.member.commits import CommitIdentity, CommitVerdict
from kohort.group.member.config import MemberConfig
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
from kohort.group.member.offers import offered
from kohort.group.member.session import Sent
from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import replace
from kohort.wire.messages.membership import HeartbeatResponse
from kohort.wire.messages.offsets import OffsetCommitRequest

__all__ = ["ClassicMember", "MemberSession", "MemberState"]

_REBALANCING = (
    MemberState.UNJOINED,
    MemberState.PREPARING_REBALANCE,
    MemberState.COMPLETING_REBALANCE,
)


class ClassicMember(MemberMachine[MemberSession]):
    """One member of one group."""

    def __init__(self, config: MemberConfig, assignors: Sequence[Assignor]) -> None:
        """Make a member that wants nothing yet.

        Args:
            config: Its settings.
            assignors: The assignors it offers to the group, the best liked first.

        Raises:
            ConfigError: No assignor, two of one name, a name or version of the wrong type, or no
                rebalance protocol that all of them support (L1).
        """
        offers = offered(assignors)
        if not offers:
            raise ConfigError("a member needs assignors, each with a name of its own")
        self.assignors: Mapping[str, Assignor] = {
            offer.name: each for offer, each in zip(offers, assignors, strict=True)
        }
        self._offers = offers
        protocol = common_protocol(assignors)
        if protocol is None:
            names = ", ".join(self.assignors)
            raise ConfigError(f"no rebalance protocol is supported by all assignors: {names}")
        self.protocol: RebalanceProtocol = protocol
        super().__init__(config, MemberSession())

    # ------------------------------------------------------------------------------- what it knows

    @property
    def state(self) -> MemberState:
        """Its state."""
        return self.session.state

    @property
    def is_closed(self) -> bool:
        """Whether it has left for good."""
        return self.session.state is MemberState.CLOSED

    @property
    def heartbeat_interval_ms(self) -> int:
        """Time between heartbeats, in milliseconds."""
        return self.config.heartbeat_interval_ms

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """Partitions that it was given and has not given up."""
        return self.session.owned

    @property
    def fetchable(self) -> frozenset[TopicPartition]:
        """Partitions that may be read now: not those that the application is being told about."""
        session = self.session
        if not session.is_member:
            return frozenset()
        return session.owned - (session.callback.partitions if session.callback else frozenset())

    @property
    def group_topics(self) -> frozenset[str]:
        """Topics to watch as leader: when their partitions change, `RejoinAsked` (L8)."""
        return self.session.group_topics

    def tell_assignor(self, callback: Callback) -> None:
        """Have the assignor take note of an assignment, before the application is told (L5).

        Args:
            callback: The call into the application that is about to be made; `ASSIGNED`.

        Raises:
            Exception: Whatever the assignor raises; like an error of the listener it changes
                nothing (L6).
        """
        metadata = GroupMetadata(
            group_id=self.config.group_id,
            generation_id=callback.generation,
            member_id=self.session.member_id,
            group_instance_id=self.config.group_instance_id,
        )
        assignment = Assignment(callback.assignment, callback.user_data)
        self.assignors[callback.assignor].on_assignment(assignment, metadata)

    # ------------------------------------------------------------------------------------- commits

    def commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetCommitRequest:
        """Return the request that stores positions in this member's name (L11).

        Raises:
            LocalProtocolError: It is not a member of a generation.
            RebalanceInProgressError: Which generation it is in is being decided; poll, then commit.
        """
        if not self.session.is_member:
            raise LocalProtocolError("not a member of the group: nothing can be committed")
        if self.session.state in _REBALANCING:
            raise RebalanceInProgressError("poll until the rebalance is through, then commit again")
        return commits.commit_request(
            self.config.group_id, self.identity, self.config.group_instance_id, offsets
        )

    def commit_verdict(self, sent: CommitIdentity, error_code: int) -> CommitVerdict:
        """Say what the answer to a commit means (L11); ask before `CommitAnswered` is decided."""
        rebalancing = self.session.state in _REBALANCING
        return commits.verdict(error_code, sent, self.identity, rebalancing=rebalancing)

    # -------------------------------------------------------------------------------------- driving

    def decide(self, event: MemberEvent, now: int) -> Effects[MemberSession]:
        """Work out what an event leads to; change nothing.

        Args:
            event: What happened.
            now: Time in milliseconds, of a clock that never goes back.

        Raises:
            LocalProtocolError: A call of the application that the present state does not allow.
        """
        decision = ClassicMemberDecision(
            self.config,
            self.session,
            now,
            assignors=self._offers,
            protocol=self.protocol,
        )
        self._run(decision, event)
        return decision.effects()

    def _run(self, decision: ClassicMemberDecision, event: MemberEvent) -> None:
        """Say in the table's words what happened, and let it act."""
        match event:
            case Tick():
                due = take_due(decision)
                if due is not None:
                    _put(decision, due)
            case ResponseArrived():
                _answer(decision, event)
            case RequestFailed():
                waited = _forget_sent(decision, event.token)
                lost = CoordinatorLost(event.cause)
                _put(decision, lost if waited else StaleReport(event.token))
            case CallbackDone():
                _put(decision, told(decision, event))
            case JobDone():
                job = decision.session.job
                known = job is not None and job.token == event.token
                _put(decision, event if known else StaleReport(event.token))
            case _:
                _put(decision, event)


def _put(decision: ClassicMemberDecision, event: object) -> None:
    CLASSIC_MEMBER.run(decision, type(event), event)


def _answer(decision: ClassicMemberDecision, event: ResponseArrived) -> None:
    if not _forget_sent(decision, event.token):
        _put(decision, StaleReport(event.token))
    elif isinstance(event.response, HeartbeatResponse):
        _put(decision, HeartbeatAnswered(event.response.error_code))
    else:
        _put(decision, event.response)


def _forget_sent(decision: ClassicMemberDecision, token: int) -> bool:
    """Note that a request is answered; False: nobody waits for it."""
    session = decision.session
    if _is(session.heartbeat, token):
        decision.session = replace(session, heartbeat=None)
    elif _is(session.request, token):
        # Leaving has to know later that its good-bye was sent; every other handler is done with it.
        kept = session.request if session.state is MemberState.LEAVING else None
        decision.session = replace(session, request=kept)
    else:
        return False
    return True


def _is(sent: Sent | None, token: int) -> bool:
    return sent is not None and sent.token == token
