"""What the coordinator knows of consumer groups beyond the log: gone with the shard (K30)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from immutables import Map

from kohort.group.coordinator.consumer.group import Owned
from kohort.group.coordinator.consumer.topics import NO_TOPICS, TopicsImage
from kohort.group.coordinator.events import RequestArrived
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.membership import JoinGroupRequest

Heartbeat = RequestArrived[ConsumerGroupHeartbeatRequest]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A heartbeat that is answered when the target assignment it started is made.

    Attributes:
        arrived: The request; a JoinGroup if the member speaks the classic protocol (K45).
        member_id: Who sent it.
        before: What the member had, to tell whether that changed.
        resubscribed: Whether the request changed the subscription.
    """

    arrived: Heartbeat | RequestArrived[JoinGroupRequest]
    member_id: str
    before: Owned
    resubscribed: bool


@dataclass(frozen=True, slots=True)
class TargetRun:
    """A target assignment that is being made; at most one for each group.

    Attributes:
        token: The job's number.
        epoch: The epoch it is for.
        started: When it began, in milliseconds.
        waiting: The heartbeat that waits for it.
    """

    token: int
    epoch: int
    started: int
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class ConsumerSession:
    """Session state of the consumer groups of a shard; a value.

    Attributes:
        topics: The topics of the cluster.
        seen: The version of the topics that each group was last held against (K14).
        targets: Target assignments that are being made, by group.
        resting: Until when a group whose last target took long gets no other one.
        checking: Heartbeats that wait to hear whether what they bring is a regular expression at
            all, by the job that finds out.
        resolving: The job that resolves the expressions of a group anew, at most one each.
        next_token: Number of the next job.
    """

    topics: TopicsImage = NO_TOPICS
    seen: Map[str, int] = Map()
    targets: Map[str, TargetRun] = Map()
    resting: Map[str, int] = Map()
    checking: Map[int, Heartbeat] = Map()
    resolving: Map[str, int] = Map()
    next_token: int = 1

    def without(self, group_id: str) -> ConsumerSession:
        """Forget a group that is gone; its jobs will find nobody."""
        resting = self.resting
        if group_id in resting:
            resting = resting.delete(group_id)
        return replace(self, seen=self.seen.delete(group_id), resting=resting)


NOTHING_KNOWN = ConsumerSession()
