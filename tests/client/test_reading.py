"""What a poll reads: what the loop set aside for it, in the order of the partitions."""

from __future__ import annotations

from kohort.client.config import ConsumerConfig
from kohort.client.partitions import Partitions, PartitionState
from kohort.client.reading import read_columns, read_records
from kohort.client.records import Chunk, whole_chunk
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


def read(partitions: Partitions, count: int = 100) -> dict[TopicPartition, list[int]]:
    found = read_records(partitions, ConsumerConfig(), count)
    return {partition: [each.offset for each in records] for partition, records in found.items()}


def test_what_comes_while_a_poll_reads_is_left_to_the_loop() -> None:
    """The loop fetches more when it sets the last chunk aside: it has to know of that moment."""
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
    batch = read_columns(partitions, ConsumerConfig(), None)
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
