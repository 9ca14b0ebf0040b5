"""The session of a classic member, and the decision that one event works on."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.group.assignors.interface import Assignment, RebalanceProtocol
from kohort.group.effects import Callback, MemberJob
from kohort.group.events import Ownership
from kohort.group.machine import State
from kohort.group.member.events import GroupMembershipOperation
from kohort.group.member.offers import Offer
from kohort.group.member.session import MemberDecision, Session
from kohort.group.subscription import NO_GENERATION, PROTOCOL_TYPE
from kohort.types import TopicPartition
from kohort.values import replace


class ClassicMemberState(State):
    """The states of a classic member: Kafka's four (L9), plus those of callbacks and leaving."""

    UNSUBSCRIBED = "wants nothing"
    UNJOINED = "wants to join; waits for the coordinator, or before it tries again"
    REVOKING = "the application gives partitions up; then the member joins again"
    PREPARING_REBALANCE = "JoinGroup is in flight"
    COMPLETING_REBALANCE = "joined; the leader computes the assignment, or SyncGroup is in flight"
    ASSIGNING = "the listener is called for removed partitions, then for added ones"
    STABLE = "member with an assignment"
    STALE = "left, because the application did not poll; joins again at its next poll"
    LEAVING = "gives partitions up, then leaves"
    CLOSED = "done"
    FATAL = "cannot go on until it is unsubscribed"


class ClassicMemberSession(Session, frozen=True, kw_only=True):
    """The whole state of a member; a value.

    Attributes:
        state: Its state.
        joined_topics: The topics of its last join.
        generation: Present generation, -1 when it has none.
        owned: Partitions that are assigned to it and that it has not given up.
        assignor: Name of the assignor of this generation.
        group_topics: As leader: topics of all members, whose partitions it has to watch (L8).
        job: The assignors' running job: user data before JoinGroup, or the leader's assignment.
        user_data: The assignors' user data for this join, by name; None: not asked yet.
        assignment: The new assignment, until the application has released what moves away.
        prepared: Whether the application has given its partitions up for this rebalance (L4).
        rejoin: Why to join again as soon as this rebalance ends; None: no need.
        reason: The reason to send in the next JoinGroup (KIP-800).
        losing: While leaving: whether its partitions count as lost (L7).
        operation: The effect of closing on the group (KIP-1092).
        after_leaving: The state that follows `LEAVING`.
    """

    state: ClassicMemberState = ClassicMemberState.UNSUBSCRIBED
    joined_topics: frozenset[str] = frozenset()
    generation: int = NO_GENERATION
    owned: frozenset[TopicPartition] = frozenset()
    assignor: str = ""
    group_topics: frozenset[str] = frozenset()
    job: MemberJob | None = None
    user_data: Mapping[str, bytes] | None = None
    assignment: Assignment | None = None
    prepared: bool = False
    rejoin: str | None = None
    reason: str = ""
    losing: bool = False
    operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT
    after_leaving: ClassicMemberState = ClassicMemberState.CLOSED

    @property
    def holds_its_place(self) -> bool:
        """L7: False when leaving during a rebalance: others may already own its partitions."""
        return self.is_member and not (self.state is ClassicMemberState.LEAVING and self.losing)


class ClassicMemberDecision(MemberDecision[ClassicMemberSession], kw_only=True):
    """The effects of one event on a classic member, while its handlers run.

    Attributes:
        assignors: Its assignors, in order of preference.
        protocol: The rebalance protocol by which it gives partitions up.
        protocol_type: The protocol type of the group that it joins.
        lent: Partitions that it gives up before it rejoins, though it is cooperative.
    """

    assignors: tuple[Offer, ...]
    protocol: RebalanceProtocol
    protocol_type: str = PROTOCOL_TYPE
    lent: frozenset[TopicPartition] = frozenset()

    @property
    def is_cooperative(self) -> bool:
        """Return whether it keeps its partitions during a rebalance (KIP-429)."""
        return self.protocol is RebalanceProtocol.COOPERATIVE

    def call(
        self,
        change: Ownership,
        partitions: frozenset[TopicPartition],
        user_data: bytes | None = None,
    ) -> None:
        """Queue a call into the application; only one runs at a time."""
        assert self.session.callback is None
        assigned = change is Ownership.ASSIGNED
        callback = Callback(
            self.token(),
            change,
            partitions,
            self.session.assignor if assigned else "",
            self.session.generation,
            user_data,
            self.session.owned if assigned else frozenset(),
        )
        self.session = replace(self.session, callback=callback)
        self.callbacks.append(callback)
