"""Files: a cache of open descriptors, reads, and replacements that survive a crash or full disk."""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from kohort.broker.log.storage import Storage


class FileCache:
    """Keeps the most recently used files open, up to a limit.

    Attributes:
        storage: Reports errors of the operating system.
    """

    def __init__(self, max_open: int = 256) -> None:
        """Keep at most `max_open` descriptors open."""
        self.storage = Storage()
        self._max_open = max_open
        self._open: OrderedDict[Path, int] = OrderedDict()

    def descriptor(self, path: Path, *, create: bool = False) -> int:
        """Return a descriptor for reading and appending; valid until the next call.

        Raises:
            OSError: The file cannot be opened. Without `create` a missing file is not created, so
                that reading a removed segment does not leave an empty one.
        """
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            return descriptor
        while len(self._open) >= self._max_open:
            os.close(self._open.popitem(last=False)[1])
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        descriptor = os.open(path, flags, 0o644)
        self._open[path] = descriptor
        return descriptor

    def forget(self, path: Path) -> None:
        """Close a file before it is renamed, replaced or removed."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close every file."""
        while self._open:
            os.close(self._open.popitem()[1])


# A mapping takes two system calls and counts against a limit of the operating system (65,530 on
# Linux), so only large parts are mapped.
_WORTH_MAPPING_BYTES = 64 * 1024


def read_at(descriptor: int, position: int, size: int) -> bytes | memoryview:
    """Return `size` bytes of a file, starting at `position`.

    Large parts are not copied: the file is mapped for as long as the view exists. Meanwhile the
    file must not be truncated; it may be removed or replaced.

    Raises:
        OSError: The part cannot be read, or a large one extends past the end of the file.
    """
    if size < _WORTH_MAPPING_BYTES:
        return os.pread(descriptor, size, position)
    start = position - position % mmap.ALLOCATIONGRANULARITY
    try:
        mapped = mmap.mmap(
            descriptor, position + size - start, access=mmap.ACCESS_READ, offset=start
        )
    except ValueError as error:  # the file ends before that
        raise OSError(str(error)) from error
    return memoryview(mapped)[position - start :]


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of `data`; a file opened for appending grows by its length."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(path: Path) -> None:
    """Sync a directory, so that renames and new files survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace a small file; after a crash it has either its old content or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    sync_directory(path.parent)


# The size of the reserve is a multiple of this.
_STEP_BYTES = 16 * 1024


class Reserve:
    """Preallocated disk space for replacing a file when the disk is full.
    The space is a second file, at least as large as the target: new content is written into it, and
    it is then renamed over the target.

    Args:
        target: The file to replace.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target.with_name(target.name + ".reserve")

    @property
    def is_there(self) -> bool:
        """Whether the reserve exists; only kohort's broker creates it."""
        return self._path.exists()

    def keep(self) -> None:
        """Make the reserve as large as the target; if the disk is full, a later call retries."""
        with suppress(OSError):
            wanted = (self._target.stat().st_size // _STEP_BYTES + 1) * _STEP_BYTES
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o644)
            try:
                missing = wanted - os.fstat(descriptor).st_size
                if missing > 0:
                    write_all(descriptor, bytes(missing))
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def replace_target(self, content: bytes) -> None:
        """Replace the target without new disk blocks; a crash leaves its old content or the new.

        Raises:
            OSError: There is no reserve, or even this write failed.
        """
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_all(descriptor, content)
            os.ftruncate(descriptor, len(content))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._path.replace(self._target)
        sync_directory(self._target.parent)
