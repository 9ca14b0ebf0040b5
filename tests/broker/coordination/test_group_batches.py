"""Records of an event are one batch in the log if half of them would be a different state."""

from __future__ import annotations

import pytest

from kohort.broker.coordination.coordinator import _batches
from kohort.group.coordinator.events import Tick
from kohort.group.coordinator.records import offset_tombstone
from kohort.types import TopicPartition
from kohort.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
)

POSITIONS = tuple(
    offset_tombstone("group" * 100, TopicPartition("t", number)) for number in range(1_000)
)
GROUP = GroupRecord(
    GroupMetadataKey(group="g"),
    GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol=None, leader=None, members=()
    ),
)


@pytest.mark.parametrize(
    ("records", "count"), [(POSITIONS, 2), ((*POSITIONS, GROUP), 1), ((GROUP,), 1)]
)
def test_time_writes_a_move_of_a_group_as_one_batch(
    records: tuple[GroupRecord, ...], count: int
) -> None:
    batches = list(_batches(Tick(), records))
    assert len(batches) == count
    assert sum(map(len, batches)) == len(records)
