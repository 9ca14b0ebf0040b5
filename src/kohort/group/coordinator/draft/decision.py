"""What one event does to one draft group, while its handlers run."""

from __future__ import annotations

from dataclasses import field

from kohort.group.coordinator.consumer.topics import TopicsImage
from kohort.group.coordinator.decision import GroupDecision
from kohort.group.coordinator.draft.group import DraftGroup, DraftState
from kohort.group.coordinator.draft.jobs import DraftAssignmentJob
from kohort.values import dataclass


@dataclass(slots=True, kw_only=True)
class DraftDecision(GroupDecision[DraftGroup]):
    """One group, and what is to be done about it.

    Attributes:
        topics: The topics of the cluster.
        jobs: Assignments to make.
    """

    topics: TopicsImage
    jobs: list[DraftAssignmentJob] = field(default_factory=list)

    @property
    def state(self) -> DraftState:
        """The group's state."""
        return self.group.state
