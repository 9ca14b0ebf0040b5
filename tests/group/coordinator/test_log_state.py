"""The state that the records of the group log add up to."""

from __future__ import annotations

from kohort.group.coordinator.classic.fold import group_tombstone
from kohort.group.coordinator.records import offset_record, offset_tombstone
from kohort.group.coordinator.state import LogState
from tests.group.coordinator.dialogue import GROUP, partition, position


def test_b2_a_tombstone_for_nothing_changes_nothing() -> None:
    for state in (
        LogState(),
        LogState().apply(offset_record("other", partition(0), position(1), 0)),
    ):
        assert state.apply(group_tombstone(GROUP)) == state
        assert state.apply(offset_tombstone(GROUP, partition(0))) == state
        assert state.apply(offset_tombstone("other", partition(1))) == state
