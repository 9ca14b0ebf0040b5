"""The session state of a shard, which is not in the log and is lost with the shard.

Also the decision of a shard on one event.
"""

from __future__ import annotations

from enum import Enum

from immutables import Map
from msgspec import Struct, field

from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.events import Deadline, RequestArrived
from kohort.group.coordinator.jobs import DraftAssignmentJob, Job
from kohort.group.coordinator.records import GroupLog
from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage
from kohort.group.effects import Effects, Reply
from kohort.group.events import GroupEvent
from kohort.group.machine import Deadlines, State
from kohort.wire.codec.schema import Message
from kohort.wire.messages.group_records import GroupRecord


class Lifecycle(State):
    """The states of a shard (C74); Kafka's names are INITIAL, LOADING and ACTIVE."""

    DOWN = "Down"
    CATCH_UP = "Catch-up"
    READY = "Ready"


class Parked(Struct, frozen=True):
    """A request that waits for its answer."""

    token: int
    version: int


class LiveGroup(Struct, frozen=True, kw_only=True):
    """A group that rebalances in generations: a classic or a draft group.

    Attributes:
        group_id: Its id.
        state: Its state.
        generation: Number of its present generation, which grows with each rebalance.
    """

    group_id: str
    state: Enum
    generation: int = 0


class SessionState(Struct, frozen=True):
    """Session state of a shard; a value.

    Attributes:
        lifecycle: The state of the shard.
        deadlines: The time when each deadline is due.
        topics: The topics of the cluster, as last reported to the shard.
        parts: The session state of each kind of group; see `state.ShardSession`.
    """

    lifecycle: Lifecycle = Lifecycle.DOWN
    deadlines: Deadlines[Deadline] = field(default_factory=Deadlines)
    topics: TopicsImage = NO_TOPICS
    parts: Map[str, object] = Map()


class ShardDecision(Struct):
    """The effects of one event on a shard, while its handlers run.

    Attributes:
        config: Settings of the coordinator.
        log: Log state before the event.
        session: Session state after the event.
        now: Time of the event in milliseconds.
        wall_ms: Time of day of the event.
        records: Records to append.
        replies: Answers to release once the records are appended.
        observed: Events to report.
        draft_jobs: Assignments to compute for draft groups.
        consumer_jobs: Slow work for groups of the consumer protocol.
    """

    config: CoordinatorConfig
    log: GroupLog
    session: SessionState
    now: int
    wall_ms: int = 0
    records: list[GroupRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    observed: list[GroupEvent] = field(default_factory=list)
    draft_jobs: list[DraftAssignmentJob] = field(default_factory=list)
    consumer_jobs: list[Job] = field(default_factory=list)

    @property
    def state(self) -> Lifecycle:
        """Return the state of the shard."""
        return self.session.lifecycle

    def reply(self, arrived: RequestArrived[Message], response: Message) -> None:
        """Answer a request."""
        self.replies.append(Reply(arrived.token, response, arrived.version))

    def effects(self) -> Effects[SessionState]:
        """Return the effects of the event."""
        return Effects(
            self.session,
            tuple(self.records),
            tuple(self.replies),
            tuple(self.observed),
            draft_jobs=tuple(self.draft_jobs),
            consumer_jobs=tuple(self.consumer_jobs),
        )
