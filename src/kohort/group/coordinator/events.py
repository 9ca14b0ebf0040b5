"""Events of a shard of the coordinator."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from kohort.group.coordinator.jobs import DraftJobDone, MatchedTopics, NewTarget
from kohort.group.coordinator.topics import TopicsImage
from kohort.wire.codec.schema import Message

R_co = TypeVar("R_co", bound=Message, covariant=True)


class RequestArrived(Struct, Generic[R_co], frozen=True, kw_only=True):
    """A request arrived.

    Attributes:
        token: Unique number by which the shell routes the answer.
        request: The request.
        version: Its version on the wire.
        client_id: From the request's header.
        client_host: The sender's host, as Kafka prints it ("/127.0.0.1").
        unique_id: A string that was never used before; only a JoinGroup needs one.
        wall_ms: Time of day in milliseconds since 1970, for time stamps in the log.
        regex_error: Why the regular expression in a ConsumerGroupHeartbeat is invalid (K50);
            None: it is valid, or there is none. Only the shell knows RE2.
    """

    token: int
    request: R_co
    version: int
    client_id: str = ""
    client_host: str = ""
    unique_id: str = ""
    wall_ms: int = 0
    regex_error: str | None = None


class Tick(Struct, frozen=True):
    """Time has passed: the earliest deadline, if it is due, is handled.

    One tick handles one deadline. The shell repeats it until `next_deadline()` is in the future.
    """

    wall_ms: int = 0


class TopicsDeleted(Struct, frozen=True):
    """Topics were deleted, and with them the positions in them (C61).

    It writes to the log, so only a shard that has read its log takes it.
    """

    topics: frozenset[str]


class TopicsChanged(Struct, frozen=True):
    """The topics of the cluster have changed; also sent before the shard loads."""

    topics: TopicsImage


class JobDone(Struct, frozen=True):
    """A job of `Effects.consumer_jobs` is done.

    Attributes:
        token: The job's number.
        group_id: The group it was for.
        result: Its result.
        wall_ms: Time of day in milliseconds since 1970.
    """

    token: int
    group_id: str
    result: NewTarget | MatchedTopics
    wall_ms: int = 0


class LoadStarted(Struct, frozen=True):
    """The shard begins to read its log."""


class LoadFinished(Struct, frozen=True):
    """All records of the log were applied."""


class Unload(Struct, frozen=True):
    """The shard is no longer responsible, or its log failed."""


ShardEvent: TypeAlias = (
    RequestArrived[Message]
    | TopicsChanged
    | JobDone
    | Tick
    | TopicsDeleted
    | LoadStarted
    | LoadFinished
    | Unload
    | DraftJobDone
)


# Deadlines. Each is both the key in `Deadlines` and the event that fires; `kind` keeps two of the
# same group and member apart, because tuples compare by value alone.


class SessionExpired(NamedTuple):
    """A member did not send a heartbeat in time; or its first join was parked for too long."""

    group_id: str
    member_id: str
    kind: str = "session"


class PendingExpired(NamedTuple):
    """A client that was given a member id did not join with it in time (KIP-394)."""

    group_id: str
    member_id: str
    kind: str = "pending"


class JoinExpired(NamedTuple):
    """The time for members to join again is over."""

    group_id: str
    kind: str = "join"


class InitialDelayExpired(NamedTuple):
    """The first rebalance has waited for more members (KIP-134)."""

    group_id: str
    kind: str = "initial"


class SyncExpired(NamedTuple):
    """The time for members to ask for the assignment is over."""

    group_id: str
    kind: str = "sync"


class ConsumerSessionExpired(NamedTuple):
    """A member of a consumer group did not send a heartbeat in time (K30)."""

    group_id: str
    member_id: str
    kind: str = "consumer session"


class ConsumerRebalanceExpired(NamedTuple):
    """A member of a consumer group did not give its partitions up in time (K30)."""

    group_id: str
    member_id: str
    kind: str = "consumer rebalance"


class ConsumerJoinExpired(NamedTuple):
    """A classic member of a consumer group was asked to join again and did not (K46)."""

    group_id: str
    member_id: str
    kind: str = "consumer join"


class ConsumerSyncExpired(NamedTuple):
    """A classic member of a consumer group joined, but did not ask for its assignment (K46)."""

    group_id: str
    member_id: str
    kind: str = "consumer sync"


ConsumerDeadline: TypeAlias = (
    ConsumerSessionExpired | ConsumerRebalanceExpired | ConsumerJoinExpired | ConsumerSyncExpired
)


class ConsumerAssignmentExpired(NamedTuple):
    """The member that was asked for an assignment has not made it in time (K61)."""

    group_id: str
    kind: str = "consumer assignment"


class RetentionCheckDue(NamedTuple):
    """Stored positions, and unused groups, may have become too old to keep (KIP-211).

    As a deadline it is the shard's and names no group; each group is then asked by itself.
    """

    group_id: str = ""
    kind: str = "retention"


Deadline: TypeAlias = (
    SessionExpired
    | PendingExpired
    | JoinExpired
    | InitialDelayExpired
    | SyncExpired
    | ConsumerDeadline
    | ConsumerAssignmentExpired
    | RetentionCheckDue
)
