"""What the machines report: observed facts, with their cause, generation and time.

A fact says what one machine did or saw; nobody's opinion, nothing inferred. Together they make the
ownership timeline. `now` is the time, in milliseconds, that the machine was told by its shell.
"""

from __future__ import annotations

from enum import Enum

from kohort.types import OffsetAndMetadata, TopicPartition
from kohort.values import dataclass


class Cause(Enum):
    """Why a rebalance started, or why a member is gone."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEvent:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStateChanged(GroupEvent):
    """The group went from one state to another; names as Kafka's tools print them."""

    generation: int
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoined(GroupEvent):
    """A member was added."""

    member: str
    client_id: str
    client_host: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLeft(GroupEvent):
    """A member was removed, and why."""

    member: str
    cause: Cause
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStarted(GroupEvent):
    """A rebalance began.

    Attributes:
        generation: The generation that ends.
        member: The member that caused it, empty when none did.
        cause: Why, as a value to compare.
        reason: What the member said (KIP-800), empty when nothing.
    """

    generation: int
    member: str
    cause: Cause
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStarted(GroupEvent):
    """All members are known: a new generation has begun and waits for its assignment."""

    generation: int
    protocol: str
    leader: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(GroupEvent):
    """The group has its assignment; with KIP-848 its members have yet to get there.

    Attributes:
        generation: Generation it belongs to.
        assignments: Each member with its partitions; only members whose assignment is written in
            the consumer protocol.
    """

    generation: int
    assignments: tuple[tuple[str, tuple[TopicPartition, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentAsked(GroupEvent):
    """A member was asked to make the assignment of the group (KIP-848).

    Attributes:
        generation: Epoch of the group.
        member: Who was asked.
        assignor: By which of its assignors.
    """

    generation: int
    member: str
    assignor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorFellBack(GroupEvent):
    """No member made the assignment, so the coordinator's own assignor does.

    Attributes:
        generation: Epoch of the group.
        member: Who was asked, empty when nobody was.
        assignor: By which of its assignors.
        reason: What went wrong.
    """

    generation: int
    member: str
    assignor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReconciled(GroupEvent):
    """A member took a step towards what the group's assignment gives it (KIP-848).

    Attributes:
        member: Member id.
        epoch: Its epoch after the step.
        partitions: All that it has now, what it was told to give up included.
    """

    member: str
    epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted(GroupEvent):
    """Positions were stored."""

    member: str
    generation: int
    offsets: tuple[tuple[TopicPartition, OffsetAndMetadata], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted(GroupEvent):
    """The group and its positions are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolChanged(GroupEvent):
    """The group goes on under another protocol, with the members it has (KIP-848).

    Attributes:
        generation: Generation or group epoch, which stays the same.
        protocol: "classic" or "consumer", as from now on.
    """

    generation: int
    protocol: str


# ------------------------------------------------------------------------- reported by a member


class Ownership(Enum):
    """What happened to partitions that a member owns."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipChanged(GroupEvent):
    """A member's own partitions changed, after its application was told.

    Attributes:
        member: Member id, as it was when the change began.
        generation: Generation at that time, -1 when the member had lost it.
        change: What happened.
        partitions: To which partitions; may be empty for an empty assignment.
    """

    member: str
    generation: int
    change: Ownership
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStateChanged(GroupEvent):
    """A member went from one state to another."""

    member: str
    generation: int
    before: str
    after: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFailed(GroupEvent):
    """A member cannot go on, and why."""

    member: str
    error_code: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorUnsupported(GroupEvent):
    """The coordinator asks no member for an assignment: its own assignor makes it (K60).

    Attributes:
        member: Who has assignors of its own.
        assignors: Their names.
    """

    member: str
    assignors: tuple[str, ...]
