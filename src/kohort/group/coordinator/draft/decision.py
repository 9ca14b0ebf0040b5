"""What one event does to one draft group, while its handlers run."""

from __future__ import annotations

from msgspec import field

from kohort.group.coordinator.decision import LiveGroupDecision
from kohort.group.coordinator.draft.group import DraftGroup, DraftState
from kohort.group.coordinator.jobs import DraftAssignmentJob
from kohort.group.coordinator.session import ShardDecision


class DraftDecision(LiveGroupDecision[DraftGroup], kw_only=True):
    """One group, and what is to be done about it.

    Attributes:
        jobs: Assignments to make.
    """

    jobs: list[DraftAssignmentJob] = field(default_factory=list)

    @property
    def state(self) -> DraftState:
        """The group's state."""
        return self.group.state

    @property
    def existing(self) -> DraftGroup:
        """The group; one that is not there is in state `NONE`."""
        return self.group

    def hand_over(self, shard: ShardDecision) -> None:
        """Let the shard have the deadlines and the effects."""
        LiveGroupDecision.hand_over(self, shard)
        shard.draft_jobs += self.jobs
