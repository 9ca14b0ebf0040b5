"""What a member is told."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kohort.group.member.commits import CommitIdentity
from kohort.values import dataclass
from kohort.wire.schema import Message

# ---------------------------------------------------------------------------- from the application


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The application wants these topics.

    Attributes:
        topics: Their names; a pattern of the client's own is resolved by the shell.
        pattern: Or a regular expression that the coordinator resolves (KIP-848).
    """

    topics: frozenset[str]
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The application wants no topics any more."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The application called poll: it is alive."""


@dataclass(frozen=True, slots=True)
class RejoinAsked:
    """Somebody wants a rebalance (KIP-568): the application, or the leader when topics changed."""

    reason: str


class GroupMembershipOperation(Enum):
    """What closing means for the group (KIP-1092); the names are those of Kafka's CloseOptions."""

    DEFAULT = "a dynamic member leaves, a static one comes back within its session timeout"
    LEAVE_GROUP = "the member leaves, a static one too"
    REMAIN_IN_GROUP = "nothing is said that would make the group rebalance now"


@dataclass(frozen=True, slots=True)
class Closing:
    """The application is done.

    Attributes:
        operation: Whether the group is told (KIP-1092).
    """

    operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT


@dataclass(frozen=True, slots=True)
class CallbackDone:
    """The application's listener has returned, or failed, which changes nothing (L6)."""

    token: int
    error: str | None = None


# ---------------------------------------------------------------------------------- from the shell


@dataclass(frozen=True, slots=True)
class CoordinatorKnown:
    """The look-up that was asked for has found the coordinator.

    Attributes:
        asks_members: Whether it has the requests by which a member makes its group's assignment
            (K60); only a member with assignors of its own under KIP-848 needs to know.
    """

    asks_members: bool = True


@dataclass(frozen=True, slots=True)
class LookupFailed:
    """The look-up has failed.

    Attributes:
        error_code: What FindCoordinator answered; None: nothing.
        why: The same in words, for people.
    """

    error_code: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """The connection to the coordinator is gone, or a request of the shell was told so."""

    cause: str = ""


@dataclass(frozen=True, slots=True)
class ResponseArrived:
    """The answer to a `Send`."""

    token: int
    response: Message


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A `Send` has no answer, and will not get one.

    Attributes:
        token: Its number.
        cause: Why, for people.
        error_code: Kafka's code when no later attempt can succeed, as `UNSUPPORTED_VERSION`.
    """

    token: int
    cause: str = ""
    error_code: int | None = None


@dataclass(frozen=True, slots=True)
class TopicsNamed:
    """The shell has learned names of topics (KIP-848 assigns topics by their ids)."""

    names: Mapping[UUID, str]


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """An OffsetCommit was answered.

    Attributes:
        sent: As whom the commit was made.
        error_code: The gravest error of its partitions.
    """

    sent: CommitIdentity
    error_code: int


@dataclass(frozen=True, slots=True)
class JobDone:
    """The assignors have done a job, or failed.

    Attributes:
        token: Number of the job.
        assignments: As the job says: the assignment of each member, or what each assignor has to
            say; None when it failed.
        error: Why it failed.
    """

    token: int
    assignments: Mapping[str, bytes] | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: the earliest deadline, if it is due, is dealt with."""


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


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """A heartbeat was answered.

    Attributes:
        error_code: What the coordinator said.
    """

    error_code: int


@dataclass(frozen=True, slots=True)
class StaleReport:
    """An answer or result that nobody waits for any more."""

    token: int


class HeartbeatDue(NamedTuple):
    """Time for the next heartbeat."""

    kind: str = "heartbeat"


class SessionOverdue(NamedTuple):
    """No heartbeat was answered for a whole session timeout."""

    kind: str = "session"


class PollOverdue(NamedTuple):
    """The application did not poll for `max.poll.interval.ms`."""

    kind: str = "poll"


class RetryDue(NamedTuple):
    """Time to try to join again."""

    kind: str = "retry"


class LookupDue(NamedTuple):
    """Time to look for the coordinator again."""

    kind: str = "lookup"


# They are set and stopped with every heartbeat, and a tuple is made more slowly than it is found.
HEARTBEAT_DUE = HeartbeatDue()
SESSION_OVERDUE = SessionOverdue()
POLL_OVERDUE = PollOverdue()
RETRY_DUE = RetryDue()
LOOKUP_DUE = LookupDue()

MemberDeadline: TypeAlias = HeartbeatDue | SessionOverdue | PollOverdue | RetryDue | LookupDue
