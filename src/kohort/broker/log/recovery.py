"""What a crash, or damage, can leave at the end of a log, and how it is cut off.

Only the last segment of a log is at risk: a segment is synced before the next one is begun. Its
offsets have no gaps, because compaction never touches it; so besides the CRC, which does not cover
them, base offset and leader epoch of each batch are held against what they must be.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from pathlib import Path

from kohort.broker.log.files import sync_directory
from kohort.broker.log.segment import Segment
from kohort.wire.records.header import BatchHeader, verify_crc

logger = logging.getLogger(__name__)

_GROUPS = "__consumer_offsets-"


def recover(
    segment: Segment, leader_epoch: int, keep: Callable[[BatchHeader, memoryview], None]
) -> int:
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
    for header, batch in sound(segment.batches(), segment.base_offset, leader_epoch):
        segment.found(header, good)
        keep(header, batch)
        good += header.size_in_bytes
    torn = segment.size - good
    if torn:
        segment.cut(good)
        logger.warning(
            "%s: not closed in order, and not sound from offset %d on: %d bytes are cut off%s",
            segment.path,
            segment.next_offset,
            torn,
            _lost_with(segment),
        )
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


def open_closed(segment: Segment, size: int, end: int | None = None) -> tuple[bool, int]:
    """Open the last segment of a log that was closed in order: whole, unless damaged since.

    Args:
        segment: The segment; where no batch begins though one must, its file is cut, and what was
            behind is kept in another file.
        size: Its size when it was closed.
        end: The log's end offset when it was closed, if that is known.

    Returns:
        Whether it is as it was, and the number of bytes that were cut off.

    Raises:
        OSError: It cannot be read, or what must be cut off cannot be kept.
    """
    segment.load()
    end = end if segment.size == size else None
    if _chain_end(segment, segment.tail_position(), end) < segment.size:
        return False, _cut_damage(segment, _last_sure(segment, _chain_end(segment, 0, end)))
    if segment.size < size:
        logger.error(
            "%s: damaged since it was closed in order: %d bytes are missing at its end, and the "
            "log ends at offset %d now%s",
            segment.path,
            size - segment.size,
            segment.next_offset,
            _lost_with(segment),
        )
    return segment.size >= size, 0


def _cut_damage(segment: Segment, position: int) -> int:
    torn = segment.size - position
    kept = _keep_aside(segment, position)
    segment.cut(position)
    segment.reindex()
    logger.error(
        "%s: damaged since it was closed in order: no record batch begins at byte %d, where one "
        "must; the log ends at offset %d now, the %d bytes behind it are kept in %s%s",
        segment.path,
        position,
        segment.next_offset,
        torn,
        kept.name,
        _lost_with(segment),
    )
    return torn


def _lost_with(segment: Segment) -> str:
    is_groups = segment.path.parent.name.startswith(_GROUPS)
    return "; committed offsets of groups may be lost" if is_groups else ""


def _chain_end(segment: Segment, position: int, end: int | None) -> int:
    """Return where the row of headers of the last segment of a log breaks, its size if it is whole.

    The CRCs are not looked at: a batch whose records are damaged keeps its place, and its readers
    find out.

    Args:
        segment: A segment that was closed in order.
        position: Where to begin; a batch begins there.
        end: The log's end offset when it was closed, if that is known.
    """
    expected = None if position else segment.base_offset
    for extent in segment.extents(position):
        if expected is not None and extent.base_offset != expected:
            break
        expected = extent.next_offset
        if end is not None and extent.end == segment.size and expected != end:
            break
        position = extent.end
    return position


def _last_sure(segment: Segment, position: int) -> int:
    """Return where to cut a row of headers that breaks at a position.

    If the batch before it is damaged, it is probably this one that does not say where the next is.
    """
    for extent in segment.extents():
        if extent.end == position:
            found = next(segment.batches(extent.position), None)
            is_sure = found is not None and verify_crc(found[1])
            return position if is_sure else extent.position
    return position


def _keep_aside(segment: Segment, position: int) -> Path:
    """Copy what is behind a position of a segment into a file beside it, before it is cut off.

    Returns:
        The new file, on disk.

    Raises:
        OSError: It could not be written.
    """
    wanted = f"{segment.path.name}.cut-at-{position}"
    names = chain([wanted], (f"{wanted}-{number}" for number in count(2)))
    target = next(path for name in names if not (path := segment.path.with_name(name)).exists())
    with segment.path.open("rb") as source, target.open("xb") as kept:
        source.seek(position)
        shutil.copyfileobj(source, kept)
        kept.flush()
        os.fsync(kept.fileno())
    sync_directory(target.parent)
    return target


def _is_sound(header: BatchHeader, batch: memoryview, leader_epoch: int) -> bool:
    return 0 <= header.partition_leader_epoch <= leader_epoch and verify_crc(batch)


def read_mark(path: Path) -> list[int] | None:
    """Return what was noted when a log was closed in order, None if it was not.

    That is the base offset and the size of its last segment, and its end offset if that is known.
    """
    try:
        mark = [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return None
    return mark if len(mark) in (2, 3) else None  # 2 of earlier versions: no end offset
