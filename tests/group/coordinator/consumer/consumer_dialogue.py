"""A group of the consumer protocol, driven request by request; the cluster's topics can change.

Jobs run at once, unless a test holds them back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, cast

from kohort.broker.coordination import jobs
from kohort.errors import ErrorCode
from kohort.group.coordinator.consumer.decision import ConsumerJob
from kohort.group.coordinator.consumer.state.group import ConsumerGroup, Member
from kohort.group.coordinator.events import JobDone, TopicsChanged
from kohort.group.coordinator.shard import Shard
from kohort.group.coordinator.state import ShardSession
from kohort.group.coordinator.topics import NO_TOPICS, TopicsImage, TopicView
from kohort.group.effects import Effects
from kohort.types import TopicPartition
from kohort.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    TopicPartitions,
)
from kohort.wire.messages.groups import DeleteGroupsRequest
from tests.group.coordinator.dialogue import GROUP, Dialogue

Partitions = Mapping[str, Iterable[int]]
Held = dict[str, set[int]]


class ConsumerDialogue(Dialogue):
    """A ready shard and a cluster with topics; responses have partitions by topic name."""

    def __init__(self, **settings: Any) -> None:
        self.image = NO_TOPICS
        self.racks: Mapping[str, Iterable[str]] = {}  # of the only replica of each partition
        self.held_back: list[ConsumerJob] = []
        self.holds_jobs = False
        settings.setdefault("group_consumer_assignment_interval_ms", 0)
        super().__init__(**settings)

    def topics(self, **counts: int) -> None:
        """Set the topics of the cluster; existing ones keep their ids."""
        known = self.image.by_name
        views = {
            name: TopicView(
                known[name].topic_id if name in known else uuid.uuid4(),
                count,
                tuple(frozenset({rack}) for rack in self.racks.get(name, ())),
            )
            for name, count in counts.items()
        }
        self.image = TopicsImage.of(views.items(), self.image)
        self.run(TopicsChanged(self.image))

    def loaded(self, **settings: Any) -> Shard:
        shard = super().loaded(**settings)
        shard.install(shard.decide(TopicsChanged(self.image), self.now).session)
        return shard

    def note_jobs(self, effects: Effects[ShardSession]) -> None:
        """Run the jobs, or hold them back."""
        self.held_back += cast("tuple[ConsumerJob, ...]", effects.consumer_jobs)
        if not self.holds_jobs:
            self.do_jobs()

    def do_jobs(self) -> None:
        """Run the jobs held back, and process their results."""
        while self.held_back:
            self.finish(self.held_back.pop(0))

    def finish(self, job: ConsumerJob) -> None:
        result = jobs.do_consumer_job(job)
        self.run(JobDone(job.token, job.group_id, result, self.wall_ms))

    # ------------------------------------------------------------------------------- requests

    def beat_token(self, member_id: str, epoch: int, **more: Any) -> int:
        held = more.pop("held", None)
        group_id = more.pop("group_id", GROUP)
        version = more.pop("version", 1)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None if held is None else self.by_id(held),
            **more,
        )
        return self.ask(request, version)

    def heartbeat(self, member_id: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat that is answered at once; `held` are the partitions it reports."""
        answer: ConsumerGroupHeartbeatResponse = self.answers[
            self.beat_token(member_id, epoch, **more)
        ]
        return answer

    def enter(self, member_id: str, *topics: str, **more: Any) -> ConsumerGroupHeartbeatResponse:
        """Join with a full request."""
        more.setdefault("rebalance_timeout_ms", 30_000)
        more.setdefault("subscribed_topic_names", topics)
        return self.heartbeat(member_id, 0, held={}, **more)

    def refused(self, member_id: str, epoch: int, **more: Any) -> ErrorCode:
        """Return the error of a rejected heartbeat; checks that no record is written."""
        size = len(self.log)
        answer = self.heartbeat(member_id, epoch, **more)
        assert len(self.log) == size
        return ErrorCode(answer.error_code)

    def describe_group(self) -> DescribedConsumerGroup:
        request = ConsumerGroupDescribeRequest(group_ids=(GROUP,))
        group: DescribedConsumerGroup = self.get(request).groups[0]
        return group

    # ------------------------------------------------------------------------------- state

    @property
    def group(self) -> ConsumerGroup:
        return self.shard.log.consumer_groups[GROUP]

    def member(self, member_id: str) -> Member:
        return self.group.members[member_id]

    def target(self, member_id: str) -> Held:
        return self.by_name(self.group.target_of(member_id))

    def has(self, member_id: str) -> Held:
        return self.by_name(self.member(member_id).assigned)

    def told(self, answer: ConsumerGroupHeartbeatResponse) -> Held | None:
        """Return the partitions in a response, or None if it has no assignment."""
        assert answer.error_code == 0, answer
        if answer.assignment is None:
            return None
        parts = answer.assignment.topic_partitions
        return self.by_name({each.topic_id: each.partitions for each in parts})

    def by_name(self, partitions: Mapping[uuid.UUID, Iterable[int]]) -> Held:
        return {self.image.names[each]: set(partitions[each]) for each in partitions}

    def by_id(self, partitions: Partitions) -> tuple[TopicPartitions, ...]:
        return tuple(
            TopicPartitions(
                topic_id=self.image.by_name[name].topic_id, partitions=tuple(sorted(numbers))
            )
            for name, numbers in partitions.items()
        )

    # ----------------------------------------------------------------------------- situations

    def converge(self, *members: str) -> None:
        """Have cooperating members send heartbeats until nothing changes."""
        for _ in range(20):
            before = len(self.log)
            for member_id in members:
                member = self.member(member_id)
                self.heartbeat(member_id, member.epoch, held=self.has(member_id))
            if len(self.log) == before:
                return
        raise AssertionError("the group does not settle")

    def settled(self, *members: str, topics: Iterable[str] = ("t",), **more: Any) -> None:
        """Create a stable group of these members."""
        for member_id in members:
            assert self.enter(member_id, *topics, **more).error_code == 0
        self.converge(*members)
        assert self.group.state.value == "Stable"

    def settled_by_pattern(self, member_id: str, text: str) -> None:
        """Create a stable group of one member that subscribes by a regular expression."""
        self.enter(member_id, subscribed_topic_names=None, subscribed_topic_regex=text)
        self.converge(member_id)
        assert self.group.state.value == "Stable"

    def delete(self) -> ErrorCode:
        """Delete the group."""
        answer = self.get(DeleteGroupsRequest(groups_names=(GROUP,)))
        return ErrorCode(answer.results[0].error_code)


def tp(topic: str, number: int) -> TopicPartition:
    return TopicPartition(topic, number)
