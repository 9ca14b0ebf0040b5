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
        unique_id: A string that was never used before; only needed for JoinGroup.
        wall_ms: Time of day in milliseconds since 1970, for time stamps in the log.
        regex_error: Why the regular expression in a ConsumerGroupHeartbeat is invalid (K50);
            None: it is valid, or there is none. Only the shell has RE2.
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
    """Time has passed: handle the earliest deadline if it is due.

    One tick handles one deadline. The shell repeats it until `next_deadline()` is in the future.
    """

    wall_ms: int = 0


class TopicsDeleted(Struct, frozen=True):
    """Topics were deleted, so their positions are deleted too (C61).

    That writes to the log, so only a loaded shard handles it.
    """

    topics: frozenset[str]


class TopicsChanged(Struct, frozen=True):
    """The topics of the cluster have changed; also sent before the shard loads."""

    topics: TopicsImage


class JobDone(Struct, frozen=True):
    """A job of `Effects.consumer_jobs` is done.

    Attributes:
        token: The job's number.
        group_id: The job's group.
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


# Deadlines. Each is both the key in `Deadlines` and the event that fires; `kind` distinguishes two
# of the same group and member, because tuples compare by value.


class SessionExpired(NamedTuple):
    """A member did not send a heartbeat in time, or its first join was parked for too long."""

    group_id: str
    member_id: str
    kind: str = "session"


class PendingExpired(NamedTuple):
    """A client did not join in time with the id that it was given (KIP-394)."""

    group_id: str
    member_id: str
    kind: str = "pending"


class JoinExpired(NamedTuple):
    """The time for members to rejoin is over."""

    group_id: str
    kind: str = "join"


class InitialDelayExpired(NamedTuple):
    """The first rebalance has waited for more members (KIP-134)."""

    group_id: str
    kind: str = "initial"


class SyncExpired(NamedTuple):
    """The time for members to send SyncGroup is over."""

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
    """A classic member of a consumer group was asked to rejoin and did not (K46)."""

    group_id: str
    member_id: str
    kind: str = "consumer join"


class ConsumerSyncExpired(NamedTuple):
    """A classic member of a consumer group joined, but did not send SyncGroup (K46)."""

    group_id: str
    member_id: str
    kind: str = "consumer sync"


ConsumerDeadline: TypeAlias = (
    ConsumerSessionExpired | ConsumerRebalanceExpired | ConsumerJoinExpired | ConsumerSyncExpired
)


class ConsumerAssignmentExpired(NamedTuple):
    """A member did not compute the requested assignment in time (K61)."""

    group_id: str
    kind: str = "consumer assignment"


class RetentionCheckDue(NamedTuple):
    """The time to check for expired positions and unused groups (KIP-211).

    The deadline belongs to the shard and names no group; the event is then run on each group.
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
