"""Standard output of a command, which may be closed, full, or a pipe without a reader."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress


def write_out(line: str) -> None:
    """Print a line on standard output, and flush it.

    Raises:
        OSError: Standard output is closed, or cannot be written to.
    """
    # The stream is None if the process was started without the descriptor.
    if not hasattr(sys.stdout, "write"):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def failure_of_out() -> OSError | None:
    """Return why standard output cannot be written to, by trying another line; None if it can."""
    try:
        write_out("")
    except OSError as error:
        return error
    return None


def silence_out() -> None:
    """Drop unwritten output, about which Python would complain again at exit."""
    with suppress(OSError, ValueError, AttributeError):
        out = sys.stdout.fileno()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, out)
        os.close(nothing)
