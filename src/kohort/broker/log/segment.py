"""A segment: a contiguous part of a partition's log, in a file named after its first offset."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kohort.broker.log.files import FileCache, read_at, write_all
from kohort.broker.log.index import offset_index, time_index
from kohort.errors import ErrorCode, KafkaError, RemoteProtocolError
from kohort.wire.records.header import HEADER_SIZE, LENGTH_END, BatchHeader, parse_header

INDEX_INTERVAL_BYTES = 4096
"""Bytes of records per index entry, Kafka's default."""

SUFFIXES = (".log", ".index", ".timeindex")
"""The file extensions of a segment."""

_MAX_INT32 = 0x7FFFFFFF  # offsets and positions in an index are int32
_SCAN_BYTES = 4 * 1024 * 1024
# The header fields that a search needs: base offset, length, magic, last offset delta, max
# timestamp. A search reads dozens of headers where a fetch reads one, so it parses only these, and
# reads the whole range between two index entries at once.
_EXTENT = struct.Struct(">qi4xb6xi8xq")
_EXTENTS_BYTES = 2 * INDEX_INTERVAL_BYTES
_MAGIC = 2


class Extent(NamedTuple):
    """Position of a batch in the file, and its offsets."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int

    @property
    def end(self) -> int:
        """Position of the next batch."""
        return self.position + self.size

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.last_offset + 1


class Segment:
    """A segment's file with its indexes.

    Attributes:
        base_offset: First offset that it may contain.
        next_offset: Offset after its last batch.
        max_timestamp: Largest timestamp in it, or -1.
        size: Number of valid bytes in its file.
        damaged: Whether its chain of batches is known to break before the end of the file.
    """

    def __init__(
        self, directory: Path, base_offset: int, files: FileCache, suffix: str = ""
    ) -> None:
        """Define the segment; call `create`, `load` or recover it next.

        Args:
            directory: Directory of the partition.
            base_offset: First offset that it may contain, which names its files.
            files: The cache of descriptors.
            suffix: Suffix of its file names while the segment is not part of the log.
        """
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.max_timestamp = -1
        self._files = files
        self._use(directory, suffix)
        self.size = self.path.stat().st_size if self.path.exists() else 0
        self.damaged = False
        self._torn = False
        self._forget_index()

    def _use(self, directory: Path, suffix: str) -> None:
        log, index, times = (directory / f"{self.base_offset:020d}{kind}" for kind in SUFFIXES)
        self.path = log.with_name(log.name + suffix)
        self._offsets = offset_index(index.with_name(index.name + suffix), self._files)
        self._times = time_index(times.with_name(times.name + suffix), self._files)

    def _forget_index(self) -> None:
        self._unindexed = INDEX_INTERVAL_BYTES  # so that the first batch gets an entry
        self._newest_last_offset = self.base_offset
        self._indexed_timestamp = -1

    @property
    def modified_ms(self) -> int:
        """Time of the file's last write, in milliseconds since the epoch."""
        return self.path.stat().st_mtime_ns // 1_000_000

    # ------------------------------------------------------------------------------- opening

    def create(self) -> None:
        """Create an empty file."""
        self._files.descriptor(self.path, create=True)

    def load(self) -> None:
        """Open a trusted file: find its end by walking from the last index entry.

        A missing or damaged index is rebuilt.
        """
        if not self._load_by_index():
            self.reindex()

    def _load_by_index(self) -> bool:
        last, newest = self._offsets.last(), self._times.last()
        if last is None or newest is None:
            return self.size == 0
        if not self._is_true(last):
            return False
        # If the log itself is damaged, an index rebuilt from it would have fewer entries.
        if self._timestamp_at(newest[1]) != newest[0] and self._is_whole():
            return False
        self.max_timestamp = self._indexed_timestamp = newest[0]
        self._newest_last_offset = self.base_offset + newest[1]
        position = last[1]
        for extent in self.extents(position):
            self._note(extent)
            position = extent.end
        self.damaged = position < self.size
        return True

    def _is_whole(self) -> bool:
        """Whether batches follow each other up to the end of the file."""
        if not self.damaged:
            position = 0
            for extent in self.extents():
                position = extent.end
            self.damaged = position < self.size
        return not self.damaged

    def reindex(self) -> None:
        """Rebuild both indexes from the batches, and with them the end of the segment."""
        self.start_over()
        position = 0
        for extent in self.extents():
            self._found(extent)
            position = extent.end
        self.damaged = position < self.size

    def start_over(self) -> None:
        """Reset both indexes and the values read from them, before each batch is `found` again."""
        self._offsets.clear()
        self._times.clear()
        self.next_offset, self.max_timestamp = self.base_offset, -1
        self.damaged = False
        self._forget_index()

    def found(self, header: BatchHeader, position: int) -> None:
        """Register and index a batch that is in the file at `position`."""
        size, last_offset = header.size_in_bytes, header.last_offset
        self._found(Extent(position, size, header.base_offset, last_offset, header.max_timestamp))

    def _found(self, extent: Extent) -> None:
        self._note(extent)
        # Without an entry, searches only walk further, so a failed index write is no error.
        with suppress(OSError):
            self._index(extent)

    def tail_position(self) -> int:
        """Return a position at or before the start of the last two batches.

        Each entry is for one batch, so at least two batches follow the last but one entry.
        """
        count = len(self._offsets)
        if count < 2:
            return 0
        entry, last = self._offsets[count - 2], self._offsets[count - 1]
        return entry[1] if self._is_true(entry) and entry[1] < last[1] else 0

    def cut(self, size: int) -> None:
        """Truncate the file, durably."""
        descriptor = self._descriptor()
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
        self.size = size

    # ------------------------------------------------------------------------------- writing

    def has_room(self, size: int, last_offset: int, limit: int) -> bool:
        """Whether a batch of `size` bytes that ends at `last_offset` fits into this segment."""
        fits = self.size + size <= min(limit, _MAX_INT32)
        return self.size == 0 or (fits and last_offset - self.base_offset <= _MAX_INT32)

    def append(self, batch: bytes | memoryview, header: BatchHeader) -> None:
        """Pass one whole batch to the operating system.

        Raises:
            OSError: The write failed; the log is unchanged.
        """
        descriptor = self._files.descriptor(self.path, create=True)
        if self._torn:
            os.ftruncate(descriptor, self.size)
            self._torn = False
        try:
            write_all(descriptor, batch)
        except OSError:
            # A partial write is beyond `size`: it is never read, and the next append truncates it.
            self._torn = True
            with suppress(OSError):
                os.ftruncate(descriptor, self.size)
                self._torn = False
            raise
        position, self.size = self.size, self.size + len(batch)
        self.found(header, position)

    def flush(self) -> None:
        """Sync the records to the disk; indexes need not be."""
        os.fsync(self._descriptor())

    def release(self) -> None:
        """Close the files."""
        for path in self._paths():
            self._files.forget(path)

    def remove(self) -> None:
        """Delete the files."""
        self.release()
        for path in self._paths():
            path.unlink(missing_ok=True)

    def take_the_place_of(self, old: Segment) -> None:
        """Remove the suffix, and so replace `old`, which has the same base offset.

        The change takes effect with a single rename. At that moment no index exists, so none can be
        mistaken for the other file's.
        """
        self.release()
        old.release()
        _, *indexes = old._paths()
        for path in indexes:
            path.unlink(missing_ok=True)
        made, *made_indexes = self._paths()
        made.rename(old.path)
        with suppress(OSError):  # missing indexes are rebuilt
            for source, target in zip(made_indexes, indexes, strict=True):
                source.rename(target)
        self._use(old.path.parent, "")

    def _paths(self) -> tuple[Path, Path, Path]:
        return self.path, self._offsets.path, self._times.path

    # ------------------------------------------------------------------------------- reading

    def read(
        self, offset: int, max_bytes: int, at_least_one: bool, before: int | None = None
    ) -> bytes | memoryview | None:
        """Return whole batches from the one that contains `offset` on; None if it is not here.

        With `before`, return only batches that end before that offset.

        Raises:
            KafkaError: CORRUPT_MESSAGE: the file is damaged, so the answer is unknown.
        """
        first = self.locate(offset)
        if first is None:
            return None
        if first.last_offset >= self.next_offset:
            raise self._damage(first.position)
        if first.size > max_bytes and not at_least_one:
            return b""
        limit = first.position + max(max_bytes, first.size)
        end = self.size if limit >= self.size else self._last_end(first, limit)
        if before is not None and before < self.next_offset:
            stop = self.locate(before)
            end = min(end, end if stop is None else stop.position)
        if end <= first.position:
            return b""
        return read_at(self._descriptor(), first.position, end - first.position)

    def locate(self, offset: int) -> Extent | None:
        """Return the first batch that ends at or after `offset`, or None.

        Raises:
            KafkaError: CORRUPT_MESSAGE: no batch begins where one must. The data after it must not
                be taken for the next batch.
        """
        position = self._position_before(offset)
        for extent in self.extents(position):
            if extent.last_offset >= offset:
                return extent
            position = extent.end
        if position < self.size:
            raise self._damage(position)
        return None

    def _position_before(self, offset: int) -> int:
        """Return the position of a batch at or before the one that contains `offset`."""
        entry = self._offsets.floor(offset - self.base_offset)
        if entry is not None and not self._is_true(entry):
            if not self._is_whole():
                return 0
            self.reindex()
            entry = self._offsets.floor(offset - self.base_offset)
        return entry[1] if entry else 0

    def _damage(self, position: int) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{self.path} is damaged: no record batch begins at byte {position} of {self.size}, "
            "where one must; restore the file from a backup, or let readers seek past it",
        )

    def _last_end(self, first: Extent, limit: int) -> int:
        """Return the end of the last batch, from `first` on, that ends by `limit`."""
        end = first.position + first.size
        entry = self._offsets.floor(limit, field=1)
        if entry is not None and entry[1] > end and self._is_true(entry):
            end = entry[1]
        for extent in self.extents(end):
            if extent.end > limit:
                break
            end = extent.end
        return end

    def find_timestamp(self, timestamp: int) -> Iterator[memoryview]:
        """Yield the batches that may contain the first record at or after `timestamp`.

        Raises:
            KafkaError: CORRUPT_MESSAGE: that record may be where the file is damaged.
        """
        before = self._times.floor(timestamp - 1)
        start = 0
        if before is not None:
            if self._timestamp_at(before[1]) != before[0]:
                if self._is_whole():
                    self.reindex()
                before = None if self.damaged else self._times.floor(timestamp - 1)
            found = self.locate(self.base_offset + before[1]) if before else None
            start = found.position if found else 0
        for header, batch in self.all_batches(start):
            if header.max_timestamp >= timestamp:
                yield batch

    def all_batches(self, position: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each batch with its header, up to the end of the file.

        Raises:
            KafkaError: CORRUPT_MESSAGE: no batch begins where one must.
        """
        for header, batch in self.batches(position):
            yield header, batch
            position += header.size_in_bytes
        if position < self.size:
            raise self._damage(position)

    def batches(self, position: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each whole batch with its header, reading the file in large pieces.

        Stops at the end of the file, or silently at the first invalid header.
        """
        while position + HEADER_SIZE <= self.size:
            piece = memoryview(os.pread(self._descriptor(), _SCAN_BYTES, position))
            at = 0
            while (header := _header(piece, at)) is not None:
                end = at + header.size_in_bytes
                if position + end > self.size:
                    return
                if end > len(piece):
                    break
                yield header, piece[at:end]
                at = end
            if at == 0:  # a batch larger than the piece, or none
                if header is None:
                    return
                batch = os.pread(self._descriptor(), header.size_in_bytes, position)
                yield header, memoryview(batch)
                at = len(batch)
            position += at

    def extents(self, position: int = 0) -> Iterator[Extent]:
        """Yield the extent of each batch, from the one at `position` on.

        Stops at the end of the file, or silently if no valid batch follows.
        """
        least = self.base_offset
        while position < self.size:
            piece = os.pread(self._descriptor(), _EXTENTS_BYTES, position)
            at = 0
            while (extent := self._extent(piece, at, position + at)) is not None:
                if extent.base_offset < least:
                    return
                yield extent
                least = extent.next_offset
                at += extent.size
            if at == 0:
                return
            position += at

    # ------------------------------------------------------------------------------- inside

    def _extent_at(self, position: int) -> Extent | None:
        if not 0 <= position < self.size:
            return None
        return self._extent(os.pread(self._descriptor(), _EXTENT.size, position), 0, position)

    def _extent(self, piece: bytes, at: int, position: int) -> Extent | None:
        """Return the batch at `at` in a piece of the file, which is `position` in the file."""
        if at + _EXTENT.size > len(piece):
            return None
        base_offset, length, magic, delta, max_timestamp = _EXTENT.unpack_from(piece, at)
        size = length + LENGTH_END
        fits = HEADER_SIZE <= size <= self.size - position
        if not fits or magic != _MAGIC or delta < 0:
            return None
        return Extent(position, size, base_offset, base_offset + delta, max_timestamp)

    def _is_true(self, entry: tuple[int, int]) -> bool:
        """Whether an entry of the offset index leads to the batch that it names."""
        extent = self._extent_at(entry[1])
        return extent is not None and extent.last_offset == self.base_offset + entry[0]

    def _timestamp_at(self, relative_offset: int) -> int | None:
        """Return the largest timestamp of the batch that ends at an offset."""
        last_offset = self.base_offset + relative_offset
        try:
            extent = self.locate(last_offset)
        except KafkaError:
            return None
        if extent is None or extent.last_offset != last_offset:
            return None
        return extent.max_timestamp

    def _index(self, extent: Extent) -> None:
        """Index a batch, by its last offset as in Kafka, unless the last entry is close."""
        relative_offset = extent.last_offset - self.base_offset
        if self._unindexed >= INDEX_INTERVAL_BYTES and 0 <= relative_offset <= _MAX_INT32:
            self._offsets.append(relative_offset, extent.position)
            if self.max_timestamp > self._indexed_timestamp:
                newest = self._newest_last_offset - self.base_offset
                self._times.append(self.max_timestamp, newest)
                self._indexed_timestamp = self.max_timestamp
            self._unindexed = 0
        self._unindexed += extent.size

    def _note(self, extent: Extent) -> None:
        self.next_offset = max(self.next_offset, extent.next_offset)
        if extent.max_timestamp > self.max_timestamp:
            self.max_timestamp = extent.max_timestamp
            self._newest_last_offset = extent.last_offset

    def _descriptor(self) -> int:
        return self._files.descriptor(self.path)


def _header(data: memoryview, at: int) -> BatchHeader | None:
    try:
        return parse_header(data, at)
    except RemoteProtocolError:
        return None
