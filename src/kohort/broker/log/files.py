"""Files: a cache of open ones, reads, and replacements that survive a crash or a full disk."""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from kohort.broker.log.storage import Storage


class FileCache:
    """Keeps the most recently used files open, up to a bound.

    Attributes:
        storage: Tells what the operating system refuses.
    """

    def __init__(self, max_open: int = 256) -> None:
        """Keep at most `max_open` descriptors open at once."""
        self.storage = Storage()
        self._max_open = max_open
        self._open: OrderedDict[Path, int] = OrderedDict()

    def descriptor(self, path: Path, *, create: bool = False) -> int:
        """Return a descriptor for reading and appending; valid until the next call.

        Raises:
            OSError: It cannot be opened; a file that is not there is made only if `create` says so,
                so that reading a removed segment does not bring an empty one back.
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
        """Close a file, because it is about to be renamed, replaced or removed."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close every file."""
        while self._open:
            os.close(self._open.popitem()[1])


# A mapping costs two system calls and counts against a limit of the operating system (65,530 on
# Linux), so only what is large is mapped.
_WORTH_MAPPING_BYTES = 64 * 1024


def read_at(descriptor: int, position: int, size: int) -> bytes | memoryview:
    """Return `size` bytes of a file from `position` on.

    Much is not copied: the file is mapped, for as long as the view lives. The part must not be cut
    off meanwhile; removing or replacing the file does no harm.

    Raises:
        OSError: They cannot be read, or a large part is not all there.
    """
    if size < _WORTH_MAPPING_BYTES:
        return os.pread(descriptor, size, position)
    start = position - position % mmap.ALLOCATIONGRANULARITY
    try:
        mapped = mmap.mmap(
            descriptor, position + size - start, access=mmap.ACCESS_READ, offset=start
        )
    except ValueError as error:  # the file ends earlier
        raise OSError(str(error)) from error
    return memoryview(mapped)[position - start :]


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of `data`; a file opened for appending grows by exactly that."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive the machine: renames and new files count after it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace a small file so that a crash leaves either the old content or the new."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    sync_directory(path.parent)


# The reserve grows in steps of this size.
_STEP_BYTES = 16 * 1024


class Reserve:
    """A file beside another one, at least as large, whose blocks that one takes over in need.

    Args:
        target: The file that must be replaced when nothing more can be written.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target.with_name(target.name + ".reserve")

    @property
    def is_there(self) -> bool:
        """Whether the file is there, which only a broker of this kind makes."""
        return self._path.exists()

    def keep(self) -> None:
        """Have as much room as the target has now; without space for that it is tried later."""
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
        """Replace the target, without new blocks; a crash leaves its old content or the new.

        Raises:
            OSError: There is no reserve, or the disk does not take even this.
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
