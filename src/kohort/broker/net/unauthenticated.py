"""Connections that have yet to authenticate: a bound on their number, and on the log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)

_QUIET_S = 60.0
_LINES = 10


class RateLimitedLog:
    """Logs WARNINGs that a stranger can bring about as often as it likes.

    So many a minute are logged; the last of them says so, and the next one how many were left out.

    Args:
        clock: Seconds, from an arbitrary start.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = float("-inf")
        self._logged = self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        """Log a line, with values for its `%`."""
        if self._clock() - self._since >= _QUIET_S:
            self._since, self._logged = self._clock(), 0
        if self._logged == _LINES:
            self._left_out += 1
            return
        self._logged += 1
        if self._left_out:
            text, values = f"{text} (%d such lines before were left out)", (*values, self._left_out)
            self._left_out = 0
        if self._logged == _LINES:
            text, values = f"{text} (more are left out for up to %d s)", (*values, int(_QUIET_S))
        logger.warning(text, *values)


class Closable(Protocol):
    """A connection, as far as it matters here."""

    def close(self) -> None:
        """Close the connection."""


class UnauthenticatedConnections:
    """The connections that have yet to authenticate, the oldest first.

    When there are too many the oldest is closed: a client that goes on authenticating is soon none
    of them, and connections that do nothing keep no other from being accepted.

    Args:
        limit: Most of them.
        clock: Seconds, from an arbitrary start.

    Attributes:
        log: Takes the lines about them.
    """

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self.log = RateLimitedLog(clock)
        self._waiting: dict[Closable, None] = {}
        self._closed = 0
        self._quiet_until = float("-inf")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._waiting)

    def enter(self, connection: Closable) -> None:
        """Note one, and close the oldest if it is one too many."""
        self._waiting[connection] = None
        if len(self._waiting) > self._limit:
            oldest = next(iter(self._waiting))
            self.leave(oldest)
            oldest.close()
            self._tell()

    def leave(self, connection: Closable) -> None:
        """Forget one that has authenticated, or is closed."""
        self._waiting.pop(connection, None)

    def _tell(self) -> None:
        self._closed += 1
        if self._clock() < self._quiet_until:
            return
        self._quiet_until = self._clock() + _QUIET_S
        logger.warning(
            "more than %d connections have not authenticated: the oldest of them are closed, %d "
            "since the start; if these are clients of yours that all start at once, raise "
            "max_unauthenticated_connections",
            self._limit,
            self._closed,
        )
