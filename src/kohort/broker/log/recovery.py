"""What a crash can leave at the end of a log, and how it is cut off.

Only the last segment of a log is at risk: a segment is synced before the next one is begun. Its
offsets have no gaps, because compaction never touches it; so besides the CRC, which does not cover
them, base offset and leader epoch of each batch are held against what they must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kohort.broker.log.segment import Segment
from kohort.wire.records.header import BatchHeader, verify_crc


def recover(segment: Segment, leader_epoch: int, keep: Callable[[BatchHeader], None]) -> int:
    """Check every batch of the segment, and cut the file at the first that is torn or damaged.

    Args:
        segment: The last of its log; its indexes are built again.
        leader_epoch: Newest leader epoch there has been.
        keep: Told each batch that stays.

    Returns:
        The number of bytes that were cut off.
    """
    segment.start_over()
    good = 0
    for header, _ in sound(segment.batches(), segment.base_offset, leader_epoch):
        segment.found(header, good)
        keep(header)
        good += header.size_in_bytes
    torn = segment.size - good
    if torn:
        segment.cut(good)
    return torn


def sound(
    batches: Iterable[tuple[BatchHeader, memoryview]], next_offset: int, leader_epoch: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield batches up to the first that is torn or damaged, or not the one that comes next.

    Args:
        batches: Whole batches in a row, nothing of them checked but their headers' values.
        next_offset: The base offset that the first must have.
        leader_epoch: Newest leader epoch there has been.
    """
    for header, batch in batches:
        if header.base_offset != next_offset or not _is_sound(header, batch, leader_epoch):
            return
        yield header, batch
        next_offset = header.next_offset


def has_sound_tail(segment: Segment, leader_epoch: int) -> bool:
    """Whether at least the last two batches of a segment that was closed in order are as written.

    Reads a few KiB, or two batches if they are larger, however long the segment is.
    """
    position = segment.tail_position()
    expected: int | None = None
    for header, batch in segment.batches(position):
        if expected is not None and header.base_offset != expected:
            return False
        if not _is_sound(header, batch, leader_epoch):
            return False
        expected = header.next_offset
        position += header.size_in_bytes
    return position == segment.size


def _is_sound(header: BatchHeader, batch: memoryview, leader_epoch: int) -> bool:
    return 0 <= header.partition_leader_epoch <= leader_epoch and verify_crc(batch)
