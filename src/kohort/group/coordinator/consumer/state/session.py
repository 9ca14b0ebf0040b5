"""The session state of consumer groups, which is lost with the shard (K30)."""

from __future__ import annotations

from typing import TypeVar

from immutables import Map
from msgspec import Struct

from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Owned
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.records import Part
from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage
from kohort.values import replace
from kohort.wire.messages.client_assignors import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupPrepareAssignmentRequest,
)
from kohort.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.membership import JoinGroupRequest

T = TypeVar("T")

Heartbeat = RequestArrived[ConsumerGroupHeartbeatRequest]
Prepare = RequestArrived[ConsumerGroupPrepareAssignmentRequest]
Install = RequestArrived[ConsumerGroupInstallAssignmentRequest]


class Waiting(Struct, frozen=True):
    """A heartbeat that waits for the target assignment that it triggered.

    Attributes:
        arrived: The request; a JoinGroup if the member speaks the classic protocol (K45).
        member_id: The member that sent it.
        before: The member's former partitions, to detect a change.
        resubscribed: Whether the request changed the subscription.
    """

    arrived: Heartbeat | RequestArrived[JoinGroupRequest]
    member_id: str
    before: Owned
    resubscribed: bool


class TargetRun(Struct, frozen=True):
    """A running job for a target assignment; at most one for each group.

    Attributes:
        token: The job's number.
        epoch: The target's epoch.
        started: When it began, in milliseconds.
        waiting: The heartbeat that waits for it, if any.
    """

    token: int
    epoch: int
    started: int
    waiting: Waiting | None


class Computation(Struct, frozen=True):
    """A target assignment that a member computes (K61); at most one for each group.

    Attributes:
        epoch: The target's epoch.
        assignor: Name of the assignor.
        member_id: The member that was asked; None: no capable one has sent a heartbeat yet.
        prepared: The group as it was sent to the member, None before it asked.
        topics: The topics as they were sent to it.
        token: The job that checks its result, 0 before it starts.
    """

    epoch: int
    assignor: str
    member_id: str | None = None
    prepared: ConsumerGroup | None = None
    topics: TopicsImage = NO_TOPICS
    token: int = 0


class ConsumerSession(Struct, frozen=True):
    """Session state of the consumer groups of a shard; a value.

    Attributes:
        seen: The topics version with which each group was last compared (K14).
        targets: Running target assignments, by group.
        resting: Until when each group gets no new target, because its last one took long.
        resolving: The job that resolves the expressions of a group again, at most one each.
        computing: Target assignments that members compute, by group.
        installing: Assignments that members computed, by the job that checks each.
        unreliable: Members of each group that were asked for an assignment and failed.
        next_token: Number of the next job.
    """

    seen: Map[str, int] = Map()
    targets: Map[str, TargetRun] = Map()
    resting: Map[str, int] = Map()
    resolving: Map[str, int] = Map()
    computing: Map[str, Computation] = Map()
    installing: Map[int, Install] = Map()
    unreliable: Map[str, frozenset[str]] = Map()
    next_token: int = 1

    def without(self, group_id: str) -> ConsumerSession:
        """Return the state without a deleted group; the results of its jobs will be ignored."""
        return replace(
            self,
            seen=_without(self.seen, group_id),
            targets=_without(self.targets, group_id),
            resting=_without(self.resting, group_id),
            resolving=_without(self.resolving, group_id),
            computing=_without(self.computing, group_id),
            unreliable=_without(self.unreliable, group_id),
        )


def _without(known: Map[str, T], group_id: str) -> Map[str, T]:
    return known.delete(group_id) if group_id in known else known


SESSION: Part[ConsumerSession] = Part("consumer", ConsumerSession())
