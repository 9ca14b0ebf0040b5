"""The effects of a machine: the only output of `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from msgspec import Struct

from kohort.errors import KohortError
from kohort.group.events import GroupEvent, Ownership
from kohort.group.subscription import Subscription
from kohort.types import TopicPartition
from kohort.wire.codec.schema import Message

if TYPE_CHECKING:
    from kohort.group.coordinator.jobs import DraftAssignmentJob, Job
    from kohort.wire.messages.group_records import GroupRecord

T = TypeVar("T")


class Reply(Struct, frozen=True):
    """The answer to a request, to be released once the effects' records are in the log.

    Attributes:
        token: The number that came with the request.
        response: The answer.
        version: Version of the request, and so of the answer.
    """

    token: int
    response: Message
    version: int


class Send(Struct, frozen=True):
    """A request of a member to its coordinator.

    Attributes:
        token: Number with which to report the answer or the failure.
        request: The request, with the fields of all versions filled.
        timeout_ms: How long to wait for the answer; None: the client's usual time.
    """

    token: int
    request: Message
    timeout_ms: int | None = None


class Callback(Struct, frozen=True):
    """A call into the application, to be made from inside its poll.

    Attributes:
        token: Number with which to report the end of the call, any time later.
        change: Which of the three listener methods to call.
        partitions: The partitions concerned: with `ASSIGNED` those that were added.
        assignor: Name of the assignor that computed the assignment; only for `ASSIGNED`.
        generation: Generation of the assignment.
        user_data: Data from the leader's assignor for this member.
        assignment: All partitions of this member, for its assignor; only for `ASSIGNED`.
    """

    token: int
    change: Ownership
    partitions: frozenset[TopicPartition]
    assignor: str = ""
    generation: int = -1
    user_data: bytes | None = None
    assignment: frozenset[TopicPartition] = frozenset()


class AssignmentJob(Struct, frozen=True):
    """Work for the leader: compute the assignment; may run in any thread.

    Attributes:
        token: Number with which to report the result.
        assignor: Name of the assignor that the group agreed on.
        subscriptions: The subscription of each member, by member id.
        partitions: Number of partitions of each topic, if the coordinator sent it (KIP-848);
            None: the shell has to look it up.
    """

    token: int
    assignor: str
    subscriptions: Mapping[str, Subscription]
    partitions: Mapping[str, int] | None = None


class SubscriptionJob(Struct, frozen=True):
    """Ask each assignor for its user data for the leader; may run in any thread.

    Assignors are application code, which machines never call. The result maps names of assignors to
    their data, without those that have none.

    Attributes:
        token: Number with which to report the result.
        topics: The topics the member subscribes to.
    """

    token: int
    topics: frozenset[str]


MemberJob: TypeAlias = AssignmentJob | SubscriptionJob
"""Work of a member; `JobDone` reports the result."""


class Effects(Struct, Generic[T], frozen=True):
    """The effects of a decision.

    The shell appends `records` as one batch and applies them, installs `session`, then carries out
    all other effects. If the append fails, it must drop them all.

    Attributes:
        session: The machine's session state after the event.
        records: Records for the group log (coordinator).
        replies: Answers to this request or to parked ones (coordinator).
        observed: Events, for listeners.
        sends: Requests to the coordinator (member).
        callbacks: Calls into the application, in order (member).
        jobs: Slow work (member).
        find_coordinator: Whether the coordinator has to be looked up (member).
        raised: Errors to raise in the application's next poll (member).
        draft_jobs: Assignments to compute for draft groups (coordinator).
        consumer_jobs: Slow work for groups of the consumer protocol (coordinator).
    """

    session: T
    records: tuple[GroupRecord, ...] = ()
    replies: tuple[Reply, ...] = ()
    observed: tuple[GroupEvent, ...] = ()
    sends: tuple[Send, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    jobs: tuple[MemberJob, ...] = ()
    find_coordinator: bool = False
    raised: tuple[KohortError, ...] = ()
    draft_jobs: tuple[DraftAssignmentJob, ...] = ()
    consumer_jobs: tuple[Job, ...] = ()
