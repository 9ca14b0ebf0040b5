"""A coordinator and consumers of the draft protocol in one process, in virtual time.

The coordinator's assignments wait in `jobs`.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias
from uuid import NAMESPACE_DNS, uuid5

from kohort.group.coordinator import jobs
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.coordinator.draft.group import DraftGroup
from kohort.group.coordinator.draft.kind import group_of
from kohort.group.coordinator.events import ShardEvent, TopicsChanged
from kohort.group.coordinator.jobs import DraftAssignmentJob, DraftJobDone
from kohort.group.coordinator.state import ShardSession
from kohort.group.coordinator.topics import TopicsImage, TopicView
from kohort.group.effects import Effects
from kohort.group.member.draft.machine import DraftMember, DraftMemberState
from kohort.group.member.events import Subscribed
from kohort.types import TopicPartition
from tests.group.together.network import GROUP, Connected, Network

__all__ = ["FLIGHTS", "GROUP", "Application", "DraftWorld", "partitions"]

FLIGHTS = frozenset({"flights"})

Application: TypeAlias = Connected[DraftMember]


class DraftWorld(Network[DraftMember]):
    """One shard, and any number of applications."""

    def __init__(self) -> None:
        self.jobs: deque[DraftAssignmentJob] = deque()
        super().__init__(CoordinatorConfig())

    # ----------------------------------------------------------------------------- coordinator

    def prepare_shard(self) -> None:
        self.jobs.clear()
        self.tell_topics()

    def tell_topics(self, **counts: int) -> None:
        """Set the numbers of partitions of topics, and notify the shard."""
        self.topics |= counts
        topics = self.topics.items()
        views = ((name, TopicView(uuid5(NAMESPACE_DNS, name), count)) for name, count in topics)
        self.coordinate(TopicsChanged(TopicsImage.of(views, TopicsImage())))

    def coordinate(self, event: ShardEvent) -> Effects[ShardSession]:
        effects = super().coordinate(event)
        self.jobs += effects.draft_jobs
        return effects

    def run_own_job(self) -> bool:
        if not self.jobs:
            return False
        job = self.jobs.popleft()
        self.coordinate(DraftJobDone(job, jobs.compute(job)))
        return True

    @property
    def group(self) -> DraftGroup:
        return group_of(self.shard.session, self.shard.log, GROUP)

    # ------------------------------------------------------------------------------ consumers

    def start(self, name: str) -> Application:
        return self.add(name, DraftMember(self.settings(), name))

    def joined(self, *names: str) -> list[Application]:
        """Start applications and wait for their group to settle."""
        applications = [self.start(name) for name in names]
        for application in applications:
            self.tell(application, Subscribed(FLIGHTS))
        self.advance(4_000)
        assert self.everybody_is_part()
        return applications

    def run_callback(self, application: Application) -> None:
        """Assign or revoke all partitions at once."""
        callback = application.callbacks[0]
        assert not application.believes or application.believes == callback.partitions
        super().run_callback(application)

    def everybody_is_part(self) -> bool:
        states = {entry.member.state for entry in self.applications.values()}
        return states <= {DraftMemberState.PART_OF_GROUP}


def partitions(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("flights", number) for number in numbers)
