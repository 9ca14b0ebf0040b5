"""The effects of one event on one classic group, while its handlers run."""

from __future__ import annotations

from kohort.group.coordinator.classic.group import ClassicGroup, GroupState, group_record
from kohort.group.coordinator.decision import LiveGroupDecision
from kohort.group.coordinator.events import PendingExpired


class ClassicDecision(LiveGroupDecision[ClassicGroup], kw_only=True):
    """One group, and the effects on it."""

    @property
    def state(self) -> GroupState:
        """Return the group's state."""
        return self.group.state

    @property
    def existing(self) -> ClassicGroup:
        """Return the group; a missing one is `DEAD`."""
        return self.group

    def write_group(self, assignments: dict[str, bytes]) -> None:
        """Append the group with these assignments to the log."""
        self.records.append(group_record(self.group, assignments, self.wall_ms))

    def ended(self) -> None:
        """C57, C60: no member can join with an id that was handed out before."""
        for member_id in self.group.pending:
            self.cancel(PendingExpired(self.group.group_id, member_id))
        self.enter(GroupState.DEAD)
