"""A poll reads the records that the loop set aside, in the order of the partitions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.partitions import Partitions, PartitionState
from kohort.client.consumer.reading import Reader
from kohort.client.consumer.records import Chunk, whole_chunk
from kohort.errors import RemoteProtocolError
from kohort.types import TopicPartition
from kohort.wire.records import Record, encode_batch

A, B = TopicPartition("topic", 0), TopicPartition("topic", 1)


def fetched(*offsets: int) -> Chunk:
    records = [Record(offset, 0, None, str(offset).encode(), ()) for offset in offsets]
    chunk = whole_chunk(memoryview(encode_batch(records)), offsets[0])
    assert chunk is not None
    return chunk


def both() -> tuple[Partitions, PartitionState, PartitionState]:
    partitions = Partitions()
    partitions.add([A, B])
    return partitions, partitions[A], partitions[B]


def read(partitions: Partitions, most: int = 100) -> dict[TopicPartition, list[int]]:
    found = Reader(partitions, ConsumerConfig()).poll(most)
    return {partition: [each.offset for each in records] for partition, records in found.items()}


def test_what_comes_while_a_poll_reads_is_left_to_the_loop() -> None:
    """The loop fetches more when it sets the last chunk aside, so it must do that itself."""
    partitions, a, b = both()
    a.chunks.append(fetched(0, 1))
    a.take_chunk()
    a.chunks.append(fetched(2))
    b.chunks.append(fetched(7))
    assert read(partitions) == {A: [0, 1]}
    assert len(a.chunks) == len(b.chunks) == 1
    for state in (a, b):
        state.take_chunk()
    assert read(partitions) == {A: [2], B: [7]}


def test_columns_are_made_of_what_was_set_aside() -> None:
    partitions, a, b = both()
    for state in (a, b):
        state.chunks += [fetched(0, 1), fetched(2)]
        state.take_chunk()
    b.is_paused = True
    batch = Reader(partitions, ConsumerConfig()).columns(None)
    assert batch.column("offset").to_pylist() == [0, 1]
    assert len(a.chunks) == len(b.chunks) == 1


def test_what_a_poll_left_over_comes_first() -> None:
    partitions, a, _ = both()
    a.chunks += [fetched(0, 1, 2), fetched(3)]
    a.take_chunk()
    assert read(partitions, 2) == {A: [0, 1]}
    a.take_chunk()
    assert read(partitions) == {A: [2]}
    a.take_chunk()
    assert read(partitions) == {A: [3]}


def test_what_is_held_is_not_set_aside() -> None:
    partitions, a, _ = both()
    a.chunks.append(fetched(0))
    a.is_held = True
    a.take_chunk()
    assert a.current is None
    a.is_held = False
    a.take_chunk()
    assert read(partitions) == {A: [0]}


def test_an_interrupt_takes_nothing_along() -> None:
    """Records that did not reach the application are returned again, and are not committed."""
    partitions, a, b = both()
    for state, first in ((a, 0), (b, 7)):
        state.seek(first)
        state.chunks.append(fetched(first, first + 1))
        state.take_chunk()
    calls = count()

    def interrupted(value: bytes) -> bytes:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return value

    reader = Reader(partitions, ConsumerConfig(value_deserializer=interrupted))
    with pytest.raises(KeyboardInterrupt):
        reader.poll(100)
    assert reader.is_undelivered
    for _ in range(2):  # another interrupt may end the first
        reader.restore_undelivered()
    assert (a.position, b.position) == (0, 7)
    found = reader.poll(100)
    assert [each.offset for each in found[A]] == [0, 1]
    assert [each.offset for each in found[B]] == [7, 8]
    assert (a.position, b.position) == (2, 9)


def test_columns_end_before_a_corrupt_batch() -> None:
    partitions, a, b = both()
    good, bad = fetched(0, 1), fetched(2, 3)
    damaged = bytearray(bad.records)
    damaged[-1] ^= 0xFF
    for state in (a, b):
        state.seek(0)
        chunk = whole_chunk(memoryview(bytes(good.records) + bytes(damaged)), 0)
        assert chunk is not None
        state.chunks.append(chunk)
        state.take_chunk()
    reader = Reader(partitions, ConsumerConfig())
    rows = [reader.columns(None).column("offset").to_pylist() for _ in range(2)]
    assert rows == [[0, 1], [0, 1]]
    assert (a.position, b.position) == (2, 2)
    for state in (a, b):
        with pytest.raises(RemoteProtocolError, match="CRC"):
            reader.columns(None)
        assert state.position == 2


@pytest.mark.parametrize("as_columns", [False, True])
def test_crcs_are_checked_if_they_shall_be(as_columns: bool) -> None:
    damaged = bytearray(fetched(0).records)
    damaged[17] ^= 0xFF  # of the CRC itself
    for check_crcs in (True, False):
        partitions, a, _ = both()
        a.seek(0)
        a.current = whole_chunk(memoryview(bytes(damaged)), 0)
        reader = Reader(partitions, ConsumerConfig(check_crcs=check_crcs))
        if check_crcs:
            with pytest.raises(RemoteProtocolError, match="CRC"):
                reader.columns(None) if as_columns else reader.poll(10)
        else:
            assert len(reader.columns(None) if as_columns else reader.poll(10)[A]) == 1


def test_iteration_shares_the_buffer_with_polls() -> None:
    partitions, a, _ = both()
    a.seek(0)
    a.chunks.append(fetched(0, 1, 2, 3))
    a.take_chunk()
    reader = Reader(partitions, ConsumerConfig())
    first = reader.next()
    assert first is not None
    assert (first.offset, a.position, a.consumed) == (0, 1, 0)
    second = reader.next()
    assert second is not None
    assert (second.offset, a.position, a.consumed) == (1, 2, 1)
    assert [each.offset for each in reader.poll(1)[A]] == [2]
    last = reader.next()
    assert last is not None
    assert last.offset == 3
    assert reader.next() is None
    assert a.consumed == 4


@pytest.mark.parametrize("what", ["removed", "sought", "paused", "held"])
def test_iteration_hands_out_nothing_of_what_is_not_read_any_more(what: str) -> None:
    partitions, a, b = both()
    for state in (a, b):
        state.seek(0)
        state.chunks.append(fetched(0, 1, 2))
        state.take_chunk()
    reader = Reader(partitions, ConsumerConfig())
    assert reader.next() is not None
    if what == "removed":
        partitions.remove([A])
    elif what == "sought":
        a.seek(7)
    else:
        setattr(a, f"is_{what}", True)
    found = list(iter(reader.next, None))
    assert [(each.partition, each.offset) for each in found] == [(1, 0), (1, 1), (1, 2)]
    assert a.position == {"removed": 1, "sought": 7}.get(what, 1)


def passed_over(first: int, end: int) -> Chunk:
    """A chunk without visible records, as from an aborted transaction."""
    return Chunk(memoryview(b""), first, end)


def test_what_was_passed_over_does_not_come_back_with_the_end_of_a_loop() -> None:
    """While the loop waits, the next records are set aside; nothing must be taken back."""
    partitions, a, _ = both()
    a.position = a.consumed = 0
    reader = Reader(partitions, ConsumerConfig())
    a.current = passed_over(0, 10)
    assert reader.next() is None
    a.chunks.append(fetched(10, 11))
    a.take_chunk()
    reader.restore_undelivered()
    assert a.position == 10
    assert [record.offset for record in iter(reader.next, None)] == [10, 11]


@pytest.mark.parametrize(
    "take", [lambda reader: reader.poll(9), lambda reader: reader.columns(None)]
)
def test_a_poll_without_records_takes_nothing_back(take: Callable[[Reader], object]) -> None:
    partitions, a, b = both()
    a.position = a.consumed = 0
    a.current = passed_over(0, 10)
    b.failure = RemoteProtocolError("garbled")
    reader = Reader(partitions, ConsumerConfig())
    with pytest.raises(RemoteProtocolError):
        take(reader)
    reader.restore_undelivered()
    assert a.position == 10


def test_what_was_set_aside_meanwhile_follows_what_is_taken_back() -> None:
    partitions, a, _ = both()
    a.current = fetched(0, 1)
    reader = Reader(partitions, ConsumerConfig())
    reader.poll(9)
    a.chunks.append(fetched(2))
    a.take_chunk()
    reader.restore_undelivered()
    assert [record.offset for record in reader.poll(9)[A]] == [0, 1]
    a.take_chunk()
    assert [record.offset for record in reader.poll(9)[A]] == [2]
