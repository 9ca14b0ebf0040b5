"""The effects of one event on one draft group, while its handlers run."""

from __future__ import annotations

from msgspec import field

from kohort.group.coordinator.decision import LiveGroupDecision
from kohort.group.coordinator.draft.group import DraftGroup, DraftState
from kohort.group.coordinator.jobs import DraftAssignmentJob
from kohort.group.coordinator.session import ShardDecision


class DraftDecision(LiveGroupDecision[DraftGroup], kw_only=True):
    """One group, and the effects on it.

    Attributes:
        jobs: Assignments to make.
    """

    jobs: list[DraftAssignmentJob] = field(default_factory=list)

    @property
    def state(self) -> DraftState:
        """Return the group's state."""
        return self.group.state

    @property
    def existing(self) -> DraftGroup:
        """Return the group; a missing one is in state `NONE`."""
        return self.group

    def hand_over(self, shard: ShardDecision) -> None:
        """Pass the deadlines and the effects to the shard."""
        LiveGroupDecision.hand_over(self, shard)
        shard.draft_jobs += self.jobs
