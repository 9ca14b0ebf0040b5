"""What the control topic says: any bytes are read as a record or refused, and folds are right."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import LocalProtocolError
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import ControlRecordError
from kohort.streams.log.records import (
    RECORD_BYTES_MAX,
    ControlRecord,
    ControlState,
    Failed,
    Leave,
    Released,
    Started,
    encode_record,
    fold,
    key_of,
    leave_key,
)
from kohort.streams.runtime.committing import ends_as_text, ends_from_text
from kohort.types import TopicPartition

TASK = Task(1, 2)
RELEASED = Released(task=TASK, generation=3, member="m", at=4, ends=(("changelog", 2, 9),))
STARTED = Started(task=TASK, generation=4, member="n", at=5, unavailable_ms=1, restored=0)
FAILED = Failed(task=TASK, generation=4, member="n", at=6, error="ValueError: no")


def folded(*records: ControlRecord) -> ControlState:
    state = ControlState()
    for record in records:
        state = fold(state, key_of(record), encode_record(record))
    return state


def test_the_last_word_about_a_task_and_its_last_release() -> None:
    state = folded(RELEASED, STARTED)
    assert state.tasks[TASK] == STARTED
    assert state.released[TASK] == RELEASED
    assert RELEASED.changelog_ends == {TopicPartition("changelog", 2): 9}
    assert folded(RELEASED, STARTED, FAILED).tasks[TASK] == FAILED


def test_a_release_and_a_start_do_not_replace_each_other_in_a_compacted_topic() -> None:
    assert len({key_of(each) for each in (RELEASED, STARTED, FAILED)}) == 3


def test_a_tombstone_takes_back_that_a_member_is_to_leave() -> None:
    state = folded(Leave(member="m", at=1), Leave(member="n", at=2))
    assert set(state.leaves) == {"m", "n"}
    assert set(fold(state, leave_key("m"), None).leaves) == {"n"}


@given(st.binary(max_size=80) | st.none(), st.binary(max_size=200) | st.none())
def test_any_bytes_are_a_record_or_refused(key: bytes | None, value: bytes | None) -> None:
    with suppress(ControlRecordError):
        fold(ControlState(), key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, encode_record(STARTED)),
        (b"k" * 2_000, encode_record(STARTED)),
        (key_of(FAILED), encode_record(STARTED)),
        (key_of(STARTED), b" " * (RECORD_BYTES_MAX + 1)),
        (key_of(RELEASED), encode_record(RELEASED).replace(b",9]", b",-9]")),
        (b"leave/\xff", None),
    ],
)
def test_what_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ControlRecordError):
        fold(ControlState(), key, value)


def test_a_record_that_is_too_large_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="at most 65536"):
        encode_record(Leave(member="m" * RECORD_BYTES_MAX, at=1))


def test_the_ends_of_changelogs_beside_committed_offsets() -> None:
    ends = {TopicPartition("a", 3): 7, TopicPartition("b", 3): 0}
    assert ends_from_text(ends_as_text(ends), 3) == ends
    assert ends_from_text("of another client", 3) == {}
    many = {TopicPartition("c" * 200 + str(number), 3): 1 for number in range(30)}
    assert ends_as_text(many) == ""
