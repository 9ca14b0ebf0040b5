"""What a member is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kohort.group.member.commits import CommitIdentity
from kohort.wire.schema import Message

# ---------------------------------------------------------------------------- from the application


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The application wants these topics; a pattern is resolved by the shell."""

    topics: frozenset[str]


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


@dataclass(frozen=True, slots=True)
class Closing:
    """The application is done."""


@dataclass(frozen=True, slots=True)
class CallbackDone:
    """The application's listener has returned, or failed, which changes nothing (L6)."""

    token: int
    error: str | None = None


# ---------------------------------------------------------------------------------- from the shell


@dataclass(frozen=True, slots=True)
class CoordinatorKnown:
    """The look-up that was asked for has found the coordinator."""


@dataclass(frozen=True, slots=True)
class LookupFailed:
    """The look-up has failed.

    Attributes:
        error_code: What FindCoordinator answered; None: nothing.
    """

    error_code: int | None = None


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
    """A `Send` has no answer, and will not get one."""

    token: int
    cause: str = ""


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
    """A leader's assignment is ready, or failed.

    Attributes:
        token: Number of the job.
        assignments: Assignment of each member as bytes; None when it failed.
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
    | CommitAnswered
    | JobDone
    | Tick
)

# ------------------------------------------------------------- what the table calls by other names


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """A heartbeat was answered.

    Attributes:
        sent: As whom it was sent.
        error_code: What the coordinator said.
    """

    sent: CommitIdentity
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


MemberDeadline: TypeAlias = HeartbeatDue | SessionOverdue | PollOverdue | RetryDue | LookupDue
