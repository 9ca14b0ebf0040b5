"""Sparse indexes of a segment, in Kafka's formats.

`.index` maps a relative offset to a position in the segment: int32, int32. `.timeindex` maps a
timestamp to a relative offset: int64, int32. Both grow with the segment, and binary search reads
them directly from the file, so an index needs no memory whatever the size of the log.

An index is only a shortcut. It is never synced. Readers check that an entry leads to the batch it
names; `Segment` rebuilds an index with wrong entries.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from kohort.broker.log.files import FileCache, write_all


class SparseIndex:
    """Entries of two ascending fields, appended to a file."""

    def __init__(self, path: Path, files: FileCache, layout: str) -> None:
        """Open the index if it exists; `layout` is the `struct` format of an entry."""
        self.path = path
        self._files = files
        self._entry = struct.Struct(layout)
        size = path.stat().st_size if path.exists() else 0
        self._count = size // self._entry.size
        # A torn last entry is dropped; the others are still valid.
        self._torn = size % self._entry.size != 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return self._count

    def __getitem__(self, number: int) -> tuple[int, int]:
        """Return an entry by its number, counted from 0."""
        size = self._entry.size
        data = os.pread(self._files.descriptor(self.path), size, number * size)
        if len(data) < size:
            raise OSError(f"{self.path} ends before its entry {number}")
        key, value = self._entry.unpack(data)
        return key, value

    def append(self, key: int, value: int) -> None:
        """Append an entry whose fields are not below those of the last one.

        Raises:
            OSError: The write failed; the index is unchanged.
        """
        descriptor = self._files.descriptor(self.path, create=True)
        if self._torn:
            os.ftruncate(descriptor, self._count * self._entry.size)
            self._torn = False
        try:
            write_all(descriptor, self._entry.pack(key, value))
        except OSError:
            self._torn = True
            raise
        self._count += 1

    def floor(self, wanted: int, field: int = 0) -> tuple[int, int] | None:
        """Return the last entry whose `field` (0 or 1) is at most `wanted`, or None."""
        last = self.last()
        if last is None or last[field] <= wanted:  # most readers read at the end
            return last
        low, high = 0, self._count - 1
        while low < high:
            middle = (low + high) // 2
            if self[middle][field] <= wanted:
                low = middle + 1
            else:
                high = middle
        return self[low - 1] if low else None

    def last(self) -> tuple[int, int] | None:
        """Return the last entry, or None."""
        return self[self._count - 1] if self._count else None

    def clear(self) -> None:
        """Remove all entries, before the index is rebuilt."""
        os.ftruncate(self._files.descriptor(self.path, create=True), 0)
        self._count = 0
        self._torn = False


def offset_index(path: Path, files: FileCache) -> SparseIndex:
    """Return the index of relative offsets to positions."""
    return SparseIndex(path, files, ">ii")


def time_index(path: Path, files: FileCache) -> SparseIndex:
    """Return the index of timestamps to relative offsets."""
    return SparseIndex(path, files, ">qi")
