"""The events that machines report: facts with their cause, generation and time.

A fact records what one machine did or observed; nothing is inferred. Together, the facts form the
ownership timeline. `now` is the time, in milliseconds, that the shell passed to the machine.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from kohort.types import OffsetAndMetadata, TopicPartition


class Cause(Enum):
    """Why a rebalance started, or why a member was removed."""

    MEMBER_JOINED = "a member joined"
    SUBSCRIPTION_CHANGED = "a member joined again with another subscription or assignor list"
    LEADER_REJOINED = "the leader joined again, as it does when topics changed"
    MEMBER_REPLACED = "a static member came back"
    MEMBER_LEFT = "a member left"
    SESSION_EXPIRED = "no heartbeat within the session timeout"
    JOIN_TIMED_OUT = "did not join again within the rebalance timeout"
    SYNC_TIMED_OUT = "did not ask for its assignment within the rebalance timeout"
    REVOCATION_TIMED_OUT = "did not give partitions up within the rebalance timeout"
    TOPICS_CHANGED = "the number of partitions of a topic changed"
    GROUP_TOO_LARGE = "the group has more members than group.max.size"
    COORDINATOR_UNLOADED = "the coordinator moved away"


class GroupEvent(Struct, frozen=True, kw_only=True):
    """Base of all facts.

    Attributes:
        group: Group id.
        now: When it was observed, in milliseconds of the observer's clock.
    """

    group: str
    now: int

    @property
    def kind(self) -> str:
        """Name of the fact."""
        return type(self).__name__


# ------------------------------------------------------------------- reported by the coordinator


class GroupStateChanged(GroupEvent, frozen=True, kw_only=True):
    """The group went from one state to another; names as Kafka's tools print them.

    Attributes:
        generation: Generation of the group.
        before: The former state.
        after: The new state.
    """

    generation: int
    before: str
    after: str


class MemberJoined(GroupEvent, frozen=True, kw_only=True):
    """A member was added.

    Attributes:
        member: Member id.
        client_id: Client id of the member.
        client_host: The host that it connects from.
        group_instance_id: Its static id (KIP-345); None for a dynamic member.
    """

    member: str
    client_id: str
    client_host: str
    group_instance_id: str | None = None


class MemberLeft(GroupEvent, frozen=True, kw_only=True):
    """A member was removed, and why.

    Attributes:
        member: Member id.
        cause: Why, as a value to compare.
        reason: The member's reason (KIP-800), empty without one.
    """

    member: str
    cause: Cause
    reason: str = ""


class RebalanceStarted(GroupEvent, frozen=True, kw_only=True):
    """A rebalance began.

    Attributes:
        generation: The generation that ends.
        member: The member that caused it, empty when none did.
        cause: Why, as a value to compare.
        reason: The member's reason (KIP-800), empty without one.
    """

    generation: int
    member: str
    cause: Cause
    reason: str = ""


class GenerationStarted(GroupEvent, frozen=True, kw_only=True):
    """A new generation has begun with these members; its assignment follows.

    Attributes:
        generation: The new generation.
        protocol: Name of the assignor that the members agree on.
        leader: Member id of the leader.
        members: Member ids of all members.
    """

    generation: int
    protocol: str
    leader: str
    members: tuple[str, ...]


class Assigned(GroupEvent, frozen=True, kw_only=True):
    """The group has an assignment; with KIP-848 its members still have to reach it.

    Attributes:
        generation: Generation it belongs to.
        assignments: Each member with its partitions; only members whose assignment is written in
            the consumer protocol.
    """

    generation: int
    assignments: tuple[tuple[str, tuple[TopicPartition, ...]], ...]


class AssignmentAsked(GroupEvent, frozen=True, kw_only=True):
    """A member was asked to compute the group's assignment (KIP-848).

    Attributes:
        generation: Epoch of the group.
        member: The member that was asked.
        assignor: By which of its assignors.
    """

    generation: int
    member: str
    assignor: str


class AssignorFellBack(GroupEvent, frozen=True, kw_only=True):
    """No member computed the assignment, so the coordinator's own assignor does.

    Attributes:
        generation: Epoch of the group.
        member: The member that was asked; empty when none was.
        assignor: By which of its assignors.
        reason: What went wrong.
    """

    generation: int
    member: str
    assignor: str
    reason: str


class MemberReconciled(GroupEvent, frozen=True, kw_only=True):
    """A member took a step towards its target assignment (KIP-848).

    Attributes:
        member: Member id.
        epoch: Its epoch after the step.
        partitions: All its present partitions, including those it has yet to give up.
    """

    member: str
    epoch: int
    partitions: tuple[TopicPartition, ...]


class OffsetsCommitted(GroupEvent, frozen=True, kw_only=True):
    """Positions were stored.

    Attributes:
        member: Member id; empty for a client outside the group.
        generation: Generation of the commit, -1 for a client outside the group.
        offsets: Each partition with its position.
    """

    member: str
    generation: int
    offsets: tuple[tuple[TopicPartition, OffsetAndMetadata], ...]


class GroupDeleted(GroupEvent, frozen=True, kw_only=True):
    """The group and its positions were deleted."""


class ProtocolChanged(GroupEvent, frozen=True, kw_only=True):
    """The group continues under another protocol, with its present members (KIP-848).

    Attributes:
        generation: Generation or group epoch, which stays the same.
        protocol: The new protocol, "classic" or "consumer".
    """

    generation: int
    protocol: str


# ------------------------------------------------------------------------- reported by a member


class Ownership(Enum):
    """A change of a member's partitions."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class OwnershipChanged(GroupEvent, frozen=True, kw_only=True):
    """A member's own partitions changed, after its application was notified.

    Attributes:
        member: Member id, as it was when the change began.
        generation: Generation at that time, -1 if the member had lost it.
        change: The kind of change.
        partitions: The changed partitions; may be empty for an empty assignment.
    """

    member: str
    generation: int
    change: Ownership
    partitions: frozenset[TopicPartition]


class MemberStateChanged(GroupEvent, frozen=True, kw_only=True):
    """A member went from one state to another.

    Attributes:
        member: Member id; empty while it has none.
        generation: Its generation, -1 when it has none.
        before: The former state.
        after: The new state.
        reason: The reason in words; may be empty.
    """

    member: str
    generation: int
    before: str
    after: str
    reason: str = ""


class MemberFailed(GroupEvent, frozen=True, kw_only=True):
    """A member cannot continue, and why.

    Attributes:
        member: Member id; empty when it has none.
        error_code: Kafka's number of the error.
        message: The error in words.
    """

    member: str
    error_code: int
    message: str


class AssignorUnsupported(GroupEvent, frozen=True, kw_only=True):
    """The coordinator never asks members for an assignment: its own assignor computes it (K60).

    Attributes:
        member: The member with its own assignors.
        assignors: Their names.
    """

    member: str
    assignors: tuple[str, ...]
