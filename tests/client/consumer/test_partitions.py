from __future__ import annotations

from contextlib import suppress

import pytest

from kohort.client.consumer.partitions import EARLIEST, Partitions
from kohort.errors import LocalProtocolError, RequestTimedOutError
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


def test_an_explicit_commit_takes_the_place_of_what_was_stored_unless_it_fails() -> None:
    partitions = Partitions(stores_offsets=False)
    partitions.add([ONE, TWO])
    partitions.store({ONE: OffsetAndMetadata(20), TWO: OffsetAndMetadata(5)})
    other = {ONE: OffsetAndMetadata(9), TopicPartition("other", 0): OffsetAndMetadata(1)}
    with suppress(RequestTimedOutError), partitions.committing(other):
        assert partitions.consumed() == {TWO: OffsetAndMetadata(5)}
        raise RequestTimedOutError("lost")
    assert partitions.consumed()[ONE] == OffsetAndMetadata(20)
    with suppress(RequestTimedOutError), partitions.committing(other):
        partitions.store({ONE: OffsetAndMetadata(30)})
        raise RequestTimedOutError("lost")
    assert partitions.consumed()[ONE] == OffsetAndMetadata(30)
    with partitions.committing(other):
        pass
    assert partitions.consumed() == {TWO: OffsetAndMetadata(5)}


def test_what_is_stored_during_a_commit_waits_for_the_next() -> None:
    partitions = Partitions(stores_offsets=False)
    partitions.add([ONE])
    partitions.store({ONE: OffsetAndMetadata(42)})
    with partitions.committing(partitions.consumed()):
        partitions.store({ONE: OffsetAndMetadata(50)})
    assert partitions.consumed() == {ONE: OffsetAndMetadata(50)}
    with partitions.committing(partitions.consumed()):
        assert partitions.consumed() == {ONE: OffsetAndMetadata(50)}
    assert partitions.consumed() == {}
