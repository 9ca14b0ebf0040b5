"""What one event does to one classic group, while its handlers run."""

from __future__ import annotations

from kohort.group.coordinator.classic import fold
from kohort.group.coordinator.classic.group import ClassicGroup, GroupState
from kohort.group.coordinator.decision import GroupDecision
from kohort.values import dataclass


@dataclass(slots=True)
class ClassicDecision(GroupDecision[ClassicGroup]):
    """One group, and what is to be done about it."""

    @property
    def state(self) -> GroupState:
        """The group's state."""
        return self.group.state

    def write_group(self, assignments: dict[str, bytes]) -> None:
        """Append the group with these assignments to the log."""
        self.records.append(fold.group_record(self.group, assignments, self.wall_ms))
