"""Standard output of a command, which may be closed, full, or a pipe without a reader."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress


def write_out(line: str) -> None:
    """Print a line on standard output at once.

    Raises:
        OSError: It is closed, or does not take the line.
    """
    # Python's stream is None if the process was started without the descriptor.
    if not hasattr(sys.stdout, "write"):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def failure_of_out() -> OSError | None:
    """Return why standard output takes nothing, found by one more line; None if it does."""
    try:
        write_out("")
    except OSError as error:
        return error
    return None


def silence_out() -> None:
    """Drop what standard output did not take, or Python complains of it once more at the end."""
    with suppress(OSError, ValueError, AttributeError):
        out = sys.stdout.fileno()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, out)
        os.close(nothing)
