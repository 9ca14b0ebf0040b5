"""Events of a member."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from msgspec import Struct

from kohort.group.member.commits import CommitIdentity
from kohort.wire.codec.schema import Message

# ---------------------------------------------------------------------------- from the application


class Subscribed(Struct, frozen=True):
    """The application subscribed to topics.

    Attributes:
        topics: Their names; the shell resolves a client-side pattern.
        pattern: Or a regular expression that the coordinator resolves (KIP-848).
    """

    topics: frozenset[str]
    pattern: str | None = None


class Unsubscribed(Struct, frozen=True):
    """The application unsubscribed."""


class Polled(Struct, frozen=True):
    """The application called poll: it is alive."""


class RejoinAsked(Struct, frozen=True):
    """The application asks for a rebalance (KIP-568), or the leader because topics changed."""

    reason: str


class GroupMembershipOperation(Enum):
    """The effect of closing on the group (KIP-1092); names as in Kafka's CloseOptions."""

    DEFAULT = "a dynamic member leaves, a static one comes back within its session timeout"
    LEAVE_GROUP = "the member leaves, a static one too"
    REMAIN_IN_GROUP = "the member sends no request, so the group does not rebalance now"


class Closing(Struct, frozen=True):
    """The application closes the member.

    Attributes:
        operation: Whether to leave the group (KIP-1092).
    """

    operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT


class CallbackDone(Struct, frozen=True):
    """The application's listener has returned or raised; an error changes nothing (L6)."""

    token: int
    error: str | None = None


# ---------------------------------------------------------------------------------- from the shell


class CoordinatorKnown(Struct, frozen=True):
    """The requested look-up has found the coordinator.

    Attributes:
        asks_members: Whether it supports the requests by which a member computes its group's
            assignment (K60); used only by a KIP-848 member with its own assignors.
    """

    asks_members: bool = True


class LookupFailed(Struct, frozen=True):
    """The look-up has failed.

    Attributes:
        error_code: The error code of FindCoordinator; None: no answer.
        why: The reason in words.
    """

    error_code: int | None = None
    why: str = ""


class CoordinatorLost(Struct, frozen=True):
    """The connection to the coordinator is lost, or an answer says that it has moved."""

    cause: str = ""


class ResponseArrived(Struct, frozen=True):
    """The answer to a `Send`."""

    token: int
    response: Message


class RequestFailed(Struct, frozen=True):
    """A `Send` failed: it will get no answer.

    Attributes:
        token: Its number.
        cause: The reason in words.
        error_code: Kafka's code if no retry can succeed, such as `UNSUPPORTED_VERSION`.
    """

    token: int
    cause: str = ""
    error_code: int | None = None


class TopicsNamed(Struct, frozen=True):
    """The shell has looked up topic names (KIP-848 assigns topics by id)."""

    names: Mapping[UUID, str]


class CommitAnswered(Struct, frozen=True):
    """An OffsetCommit was answered.

    Attributes:
        sent: The identity in the commit.
        error_code: The most severe error of its partitions.
    """

    sent: CommitIdentity
    error_code: int


class JobDone(Struct, frozen=True):
    """A job of the assignors has ended or failed.

    Attributes:
        token: Number of the job.
        assignments: The assignment of each member, or the user data of each assignor;
            None when it failed.
        error: Why it failed.
    """

    token: int
    assignments: Mapping[str, bytes] | None
    error: str | None = None


class Tick(Struct, frozen=True):
    """Time has passed: handle the earliest deadline if it is due."""


MemberEvent: TypeAlias = (
    Subscribed
    | Unsubscribed
    | Polled
    | RejoinAsked
    | Closing
    | CallbackDone
    | CoordinatorKnown
    | LookupFailed
    | CoordinatorLost
    | ResponseArrived
    | RequestFailed
    | TopicsNamed
    | CommitAnswered
    | JobDone
    | Tick
)

# ------------------------------------------------------------- what the table calls by other names


class HeartbeatAnswered(Struct, frozen=True):
    """A heartbeat was answered.

    Attributes:
        error_code: The coordinator's error code.
    """

    error_code: int


class StaleReport(Struct, frozen=True):
    """An answer or result that the member no longer waits for."""

    token: int


class HeartbeatDue(NamedTuple):
    """It is time for the next heartbeat."""

    kind: str = "heartbeat"


class SessionOverdue(NamedTuple):
    """No heartbeat was answered for a whole session timeout."""

    kind: str = "session"


class PollOverdue(NamedTuple):
    """The application did not poll for `max.poll.interval.ms`."""

    kind: str = "poll"


class RetryDue(NamedTuple):
    """It is time to try to join again."""

    kind: str = "retry"


class LookupDue(NamedTuple):
    """It is time to look for the coordinator again."""

    kind: str = "lookup"


# Set and stopped with every heartbeat: looking a tuple up is faster than creating one.
HEARTBEAT_DUE = HeartbeatDue()
SESSION_OVERDUE = SessionOverdue()
POLL_OVERDUE = PollOverdue()
RETRY_DUE = RetryDue()
LOOKUP_DUE = LookupDue()

MemberDeadline: TypeAlias = HeartbeatDue | SessionOverdue | PollOverdue | RetryDue | LookupDue
