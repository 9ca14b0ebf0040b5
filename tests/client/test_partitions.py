from __future__ import annotations

import pytest

from kohort.client.partitions import EARLIEST, Partitions
from kohort.errors import LocalProtocolError
from kohort.types import OffsetAndMetadata, TopicPartition

ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)


def test_a_late_answer_for_a_revoked_partition_does_not_touch_its_successor() -> None:
    partitions = Partitions()
    partitions.add([ONE])
    before = partitions[ONE]
    partitions.remove([ONE])
    partitions.add([ONE])
    after = partitions[ONE]
    partitions.put_last(before)
    assert partitions[ONE] is after
    assert before is not after


def test_a_partition_that_was_served_comes_last() -> None:
    partitions = Partitions()
    partitions.add([ONE, TWO])
    partitions.put_last(partitions[ONE])
    assert [state.partition for state in partitions] == [TWO, ONE]


def test_a_seek_makes_answers_to_older_fetches_stale() -> None:
    partitions = Partitions()
    partitions.add([ONE])
    state = partitions[ONE]
    asked_in = state.incarnation
    state.seek(5)
    assert state.incarnation != asked_in
    assert (state.position, state.fetch_offset) == (5, 5)
    state.look_up(EARLIEST)
    assert state.position is None
    assert state.reset_to == EARLIEST


def test_only_what_was_handed_out_and_asked_after_may_be_committed() -> None:
    partitions = Partitions()
    partitions.add([ONE, TWO])
    partitions[ONE].seek(5)
    partitions[ONE].position = 9
    assert partitions.consumed() == {ONE: OffsetAndMetadata(5)}
    partitions.mark_consumed()
    assert partitions.consumed([ONE, TWO]) == {ONE: OffsetAndMetadata(9)}


def test_what_is_not_assigned_is_named() -> None:
    with pytest.raises(LocalProtocolError, match="t-1 is not assigned"):
        Partitions()[ONE]
