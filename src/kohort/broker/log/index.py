"""Sparse indexes of a segment, in Kafka's formats.

`.index` maps a relative offset to a position in the segment: int32, int32. `.timeindex` maps a
timestamp to a relative offset: int64, int32. Both grow with the segment and are read by binary
search straight from the file, so an index costs no memory however large the log is.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from kohort.broker.log.files import FileCache, write_all


class SparseIndex:
    """Sorted entries of one size in a file, appended at the end, searched by their first field."""

    def __init__(self, path: Path, files: FileCache, layout: str) -> None:
        """Open or create the index; `layout` is the `struct` format of an entry of two fields."""
        self.path = path
        self._files = files
        self._entry = struct.Struct(layout)
        size = path.stat().st_size if path.exists() else 0
        self._count = size // self._entry.size
        # A torn last entry is dropped; the rest of the index is as good as it was.
        if size % self._entry.size:
            os.truncate(path, self._count * self._entry.size)

    def __len__(self) -> int:
        """Return the number of entries."""
        return self._count

    def append(self, key: int, value: int) -> None:
        """Add an entry whose key is not below the last one's."""
        write_all(self._files.descriptor(self.path), self._entry.pack(key, value))
        self._count += 1

    def floor(self, key: int) -> tuple[int, int] | None:
        """Return the last entry whose key is at most `key`, None when there is none."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._read(middle)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return self._read(low - 1) if low else None

    def last(self) -> tuple[int, int] | None:
        """Return the last entry."""
        return self._read(self._count - 1) if self._count else None

    def clear(self) -> None:
        """Remove every entry, before the index is built again."""
        os.ftruncate(self._files.descriptor(self.path), 0)
        self._count = 0

    def _read(self, number: int) -> tuple[int, int]:
        size = self._entry.size
        data = os.pread(self._files.descriptor(self.path), size, number * size)
        key, value = self._entry.unpack(data)
        return key, value


def offset_index(path: Path, files: FileCache) -> SparseIndex:
    """Return the index of relative offsets to positions."""
    return SparseIndex(path, files, ">ii")


def time_index(path: Path, files: FileCache) -> SparseIndex:
    """Return the index of timestamps to relative offsets."""
    return SparseIndex(path, files, ">qi")
