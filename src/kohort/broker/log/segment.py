"""One segment: a stretch of a partition's log in a file named after its first offset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kohort.broker.log.files import FileCache, write_all
from kohort.broker.log.index import offset_index, time_index
from kohort.errors import RemoteProtocolError
from kohort.wire.records.header import HEADER_SIZE, BatchHeader, parse_header, verify_crc

INDEX_INTERVAL_BYTES = 4096
_SCAN_BYTES = 4 * 1024 * 1024
# Offsets in an index are relative to the segment's first, in an int32.
_MAX_RELATIVE_OFFSET = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Located:
    """A batch's header and where the batch starts in the segment's file."""

    header: BatchHeader
    position: int


def segment_path(directory: Path, base_offset: int) -> Path:
    """Return the path of the segment that starts at `base_offset`, by Kafka's rule."""
    return directory / f"{base_offset:020d}.log"


class Segment:
    """A segment's file and its indexes."""

    def __init__(self, path: Path, files: FileCache) -> None:
        """Open or create the segment at `path`; `recover` or `load` it before anything else."""
        self.path = path
        self.base_offset = int(path.stem)
        self.next_offset = self.base_offset
        self.size = path.stat().st_size if path.exists() else 0
        self.max_timestamp = -1
        self._files = files
        self._offsets = offset_index(path.with_suffix(".index"), files)
        self._times = time_index(path.with_suffix(".timeindex"), files)
        self._unindexed = INDEX_INTERVAL_BYTES
        self._indexed_timestamp = -1

    # ------------------------------------------------------------------------------- opening

    def load(self) -> None:
        """Trust a finished segment: find its end by walking from the last index entry.

        A missing or damaged index is built again.
        """
        last = self._offsets.last()
        start = last[1] if last is not None and 0 <= last[1] < self.size else 0
        if (last is None and self.size) or start != (last[1] if last else 0):
            self._reindex()
            return
        for located in self.walk(start):
            self._note(located.header)
        newest = self._times.last()
        self.max_timestamp = max(self.max_timestamp, newest[0] if newest else -1)

    def recover(self, leader_epoch: int) -> int:
        """Check every batch, and cut the file at the first that is torn or damaged.

        The last segment is all that a crash can have hurt, and its offsets have no gaps: compaction
        never touches it. So besides the CRC, which does not cover them, offset and leader epoch
        are held against what they must be.

        Args:
            leader_epoch: Newest leader epoch there has been.

        Returns:
            The number of bytes that were cut off.
        """
        good = 0
        self._offsets.clear()
        self._times.clear()
        for header, batch in self.batches():
            sound = (
                header.base_offset == self.next_offset
                and 0 <= header.partition_leader_epoch <= leader_epoch
                and verify_crc(batch)
            )
            if not sound:
                break
            self._index(header, good)
            self._note(header)
            good += header.size_in_bytes
        torn = self.size - good
        if torn:
            os.ftruncate(self._descriptor(), good)
            os.fsync(self._descriptor())
            self.size = good
        return torn

    def _reindex(self) -> None:
        self._offsets.clear()
        self._times.clear()
        for located in self.walk(0):
            self._index(located.header, located.position)
            self._note(located.header)

    # ------------------------------------------------------------------------------- writing

    def has_room(self, size: int, last_offset: int, limit: int) -> bool:
        """Whether a batch of `size` bytes that ends at `last_offset` belongs into this segment."""
        fits = self.size + size <= limit and last_offset - self.base_offset <= _MAX_RELATIVE_OFFSET
        return self.size == 0 or fits

    def append(self, batch: bytes, header: BatchHeader) -> None:
        """Hand one whole batch to the operating system.

        Raises:
            OSError: It could not be written; the file is as it was before.
        """
        position = self.size
        try:
            write_all(self._descriptor(), batch)
            self._index(header, position)
        except OSError:
            os.ftruncate(self._descriptor(), position)
            raise
        self.size += len(batch)
        self._note(header)

    def flush(self) -> None:
        """Make what was written survive the machine."""
        os.fsync(self._descriptor())

    def remove(self) -> None:
        """Delete the segment's files."""
        for suffix in (".log", ".index", ".timeindex"):
            path = self.path.with_suffix(suffix)
            self._files.forget(path)
            path.unlink(missing_ok=True)

    # ------------------------------------------------------------------------------- reading

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that holds `offset` on; the first whatever its size."""
        first = self._find(offset)
        if first is None:
            return b""
        wanted = max(max_bytes, first.header.size_in_bytes)
        return os.pread(self._descriptor(), min(wanted, self.size - first.position), first.position)

    def find_timestamp(self, timestamp: int) -> Iterator[bytes]:
        """Yield the batches that may hold the first record at or after `timestamp`."""
        before = self._times.floor(timestamp - 1)
        start = self._find(self.base_offset + before[1]) if before else None
        for located in self.walk(start.position if start else 0):
            if located.header.max_timestamp >= timestamp:
                size = located.header.size_in_bytes
                yield os.pread(self._descriptor(), size, located.position)

    def walk(self, position: int) -> Iterator[Located]:
        """Yield the headers from `position` on without reading the records between them."""
        while position + HEADER_SIZE <= self.size:
            header = self._header_at(position)
            if header is None or position + header.size_in_bytes > self.size:
                return
            yield Located(header, position)
            position += header.size_in_bytes

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each whole batch with its header, reading the file in large pieces."""
        position = 0
        while position + HEADER_SIZE <= self.size:
            data = memoryview(os.pread(self._descriptor(), _SCAN_BYTES, position))
            at = 0
            while len(data) - at >= HEADER_SIZE:
                header = self._parse(data, at)
                if header is None or position + at + header.size_in_bytes > self.size:
                    return
                end = at + header.size_in_bytes
                if end > len(data):
                    break
                yield header, data[at:end]
                at = end
            if at == 0:  # a batch larger than the piece
                header = self._parse(data, 0)
                if header is None:
                    return
                data = memoryview(os.pread(self._descriptor(), header.size_in_bytes, position))
                yield header, data
                at = len(data)
            position += at

    # ------------------------------------------------------------------------------- inside

    def _find(self, offset: int) -> Located | None:
        """Return the first batch that ends at or after `offset`."""
        entry = self._offsets.floor(offset - self.base_offset)
        for located in self.walk(entry[1] if entry else 0):
            if located.header.next_offset > offset:
                return located
        return None

    def _header_at(self, position: int) -> BatchHeader | None:
        return self._parse(memoryview(os.pread(self._descriptor(), HEADER_SIZE, position)), 0)

    def _parse(self, data: memoryview, at: int) -> BatchHeader | None:
        try:
            return parse_header(data, at)
        except RemoteProtocolError:
            return None

    def _index(self, header: BatchHeader, position: int) -> None:
        """Add index entries for a batch, one every few KiB; by its last offset, as Kafka does."""
        if self._unindexed >= INDEX_INTERVAL_BYTES:
            relative = header.last_offset - self.base_offset
            self._offsets.append(relative, position)
            newest = max(self.max_timestamp, header.max_timestamp)
            if newest > self._indexed_timestamp:
                self._times.append(newest, relative)
                self._indexed_timestamp = newest
            self._unindexed = 0
        self._unindexed += header.size_in_bytes

    def _note(self, header: BatchHeader) -> None:
        self.next_offset = max(self.next_offset, header.next_offset)
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def _descriptor(self) -> int:
        return self._files.descriptor(self.path)
