"""A disk that is full for a while: no file of this process grows, whatever else may be done."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def full_disk(code: int = errno.ENOSPC) -> Iterator[None]:
    """Refuse each write that would make a file larger; what a file has may be overwritten."""
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
