"""Detects torn and damaged batches at the end of a log, and cuts them off.

Only the last segment of a log can be affected, as a segment is synced before the next one starts.
Its offsets have no gaps, because compaction does not touch it. So base offset and leader epoch of
each batch, which the CRC does not cover, are compared with the expected values.
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
    """Check every batch of the segment, and truncate the file at the first torn or damaged one.

    Args:
        segment: The last segment of its log; its indexes are rebuilt.
        leader_epoch: The newest leader epoch.
        keep: Called with each batch that is kept.

    Returns:
        The number of bytes cut off.
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
            "%s: not closed cleanly, and invalid from offset %d on: %d bytes were cut off%s",
            segment.path,
            segment.next_offset,
            torn,
            _lost_with(segment),
        )
    return torn


def sound(
    batches: Iterable[tuple[BatchHeader, memoryview]], next_offset: int, leader_epoch: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield batches up to the first that is torn, damaged, or out of sequence.

    Args:
        batches: Whole batches in a row, of which only the header values were checked.
        next_offset: The expected base offset of the first batch.
        leader_epoch: The newest leader epoch.
    """
    for header, batch in batches:
        if header.base_offset != next_offset or not _is_sound(header, batch, leader_epoch):
            return
        yield header, batch
        next_offset = header.next_offset


def open_closed(segment: Segment, size: int, end: int | None = None) -> tuple[bool, int]:
    """Open the last segment of a cleanly closed log; it is whole unless damaged since.

    Args:
        segment: The segment. If no valid batch begins at an expected position, its file is
            truncated there, and the bytes after it are kept in another file.
        size: Its size when the log was closed.
        end: End offset of the log when it was closed, if known.

    Returns:
        Whether it is unchanged, and the number of bytes cut off.

    Raises:
        OSError: It cannot be read, or a copy of the bytes to cut off cannot be written.
    """
    segment.load()
    end = end if segment.size == size else None
    if _chain_end(segment, segment.tail_position(), end) < segment.size:
        return False, _cut_damage(segment, _last_sure(segment, _chain_end(segment, 0, end)))
    if segment.size < size:
        logger.error(
            "%s: damaged since it was closed cleanly: %d bytes are missing at its end, and the "
            "log now ends at offset %d%s",
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
        "%s: damaged since it was closed cleanly: no record batch begins at byte %d, where one "
        "must; the log now ends at offset %d, and the %d bytes after it are kept in %s%s",
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
    """Return where the chain of batch headers of a segment breaks, or its size if it is intact.

    CRCs are not checked: a batch with damaged records keeps its place, and readers report it.

    Args:
        segment: A segment that was closed cleanly.
        position: Where to begin, at the start of a batch.
        end: End offset of the log when it was closed, if known.
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
    """Return where to truncate a chain of headers that breaks at a position.

    If the batch before that position is damaged, its length is probably wrong: cut before it.
    """
    for extent in segment.extents():
        if extent.end == position:
            found = next(segment.batches(extent.position), None)
            is_sure = found is not None and verify_crc(found[1])
            return position if is_sure else extent.position
    return position


def _keep_aside(segment: Segment, position: int) -> Path:
    """Copy the bytes after a position of a segment into a file beside it, before they are cut off.

    Returns:
        The new file, synced to the disk.

    Raises:
        OSError: The copy could not be written.
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
    """Return the mark of a cleanly closed log, or None if there is no valid one.

    It has the base offset and size of the last segment, and the end offset of the log if known.
    """
    try:
        mark = [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return None
    return mark if len(mark) in (2, 3) else None  # 2 in earlier versions, without end offset
