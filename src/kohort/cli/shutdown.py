"""The orderly end of `kohort produce` and `kohort consume` on Ctrl-C and SIGTERM."""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
ONE_SIGNAL_S = 1.0


class StoppedError(Exception):
    """A signal has ended the wait for input."""


class Stop:
    """Records the first signal; a later one ends the process as by default.

    A second signal right after the first counts as the same: `timeout` and some supervisors signal
    a process and then its whole group.

    Args:
        on_signal: Called in the handler.

    Attributes:
        by: The signal; None if there was none yet.
    """

    def __init__(self, on_signal: Callable[[], None] | None = None) -> None:
        self.by: int | None = None
        self._since = 0.0
        self._on_signal = on_signal
        self._before: list[object] = []
        self._heard, self._told = os.pipe()

    def __enter__(self) -> Self:
        self._before = [signal.signal(each, self._note) for each in _SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for each, before in zip(_SIGNALS, self._before, strict=True):
            signal.signal(each, before)  # type: ignore[arg-type]  # the value that `signal` itself returned
        os.close(self._heard)
        os.close(self._told)

    def _note(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.by is not None:
            if now - self._since > ONE_SIGNAL_S:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self.by, self._since = number, now
        os.write(self._told, b"!")
        if self._on_signal is not None:
            self._on_signal()

    def wait_readable(self, descriptor: int) -> None:
        """Wait until there is input to read, or the end of input.

        Raises:
            StoppedError: There was a signal.
        """
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._heard, select.POLLIN)
        poll.poll()
        if self.by is not None:
            raise StoppedError


def is_unread(descriptor: int) -> bool:
    """Return whether output is a pipe without a reader."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def show_warnings() -> None:
    """Print the clients' warnings on standard error, such as skipped records."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("kohort: %(message)s"))
    handler.setLevel(logging.WARNING)
    with suppress(ValueError):
        logging.getLogger("kohort").addHandler(handler)
