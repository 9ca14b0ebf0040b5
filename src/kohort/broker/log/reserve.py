"""Room on the disk for one more list of topics, so that topics can be deleted when it is full."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kohort.broker.log.files import sync_directory, write_all

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
