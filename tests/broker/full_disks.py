"""A disk that is temporarily full: no file of this process can grow."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def full_disk(code: int = errno.ENOSPC) -> Iterator[None]:
    """Refuse writes that would make a file larger; existing bytes can be overwritten."""
    write = os.write

    def refusing(descriptor: int, data: bytes) -> int:
        if _grows(descriptor, len(data)):
            raise OSError(code, os.strerror(code))
        return write(descriptor, data)

    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(os, "write", refusing)
        yield


def _grows(descriptor: int, size: int) -> bool:
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and os.lseek(descriptor, 0, os.SEEK_CUR) + size > (
        status.st_size
    )
