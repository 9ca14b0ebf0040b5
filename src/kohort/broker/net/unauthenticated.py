"""Unauthenticated connections: bounds on their number and on the log lines they cause."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)

_QUIET_S = 60.0
_LINES = 10


class RateLimitedLog:
    """Logs warnings that any stranger can cause, at a limited rate.

    A few are logged per minute. The last of these announces that more are left out, and the next
    one says how many were.

    Args:
        clock: Seconds, from an arbitrary start.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = float("-inf")
        self._logged = self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        """Log a warning; the values replace its `%` placeholders."""
        if self._clock() - self._since >= _QUIET_S:
            self._since, self._logged = self._clock(), 0
        if self._logged == _LINES:
            self._left_out += 1
            return
        self._logged += 1
        if self._left_out:
            text, values = f"{text} (left out %d similar lines before)", (*values, self._left_out)
            self._left_out = 0
        if self._logged == _LINES:
            text, values = f"{text} (more are left out for up to %d s)", (*values, int(_QUIET_S))
        logger.warning(text, *values)


class Closable(Protocol):
    """An object with a `close` method."""

    def close(self) -> None:
        """Close the connection."""


class UnauthenticatedConnections:
    """The connections that have not authenticated yet, oldest first.

    If there are too many, the oldest is closed: clients that do authenticate leave the table soon,
    and idle connections cannot keep others from being accepted.

    Args:
        limit: Maximum number of connections.
        clock: Returns seconds, from an arbitrary start.

    Attributes:
        log: Logs warnings about these connections.
    """

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self.log = RateLimitedLog(clock)
        self._waiting: dict[Closable, None] = {}
        self._closed = 0
        self._quiet_until = float("-inf")

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._waiting)

    def enter(self, connection: Closable) -> None:
        """Add a connection, and close the oldest if there are too many."""
        self._waiting[connection] = None
        if len(self._waiting) > self._limit:
            oldest = next(iter(self._waiting))
            self.leave(oldest)
            oldest.close()
            self._tell()

    def leave(self, connection: Closable) -> None:
        """Remove a connection that has authenticated or is closed."""
        self._waiting.pop(connection, None)

    def _tell(self) -> None:
        self._closed += 1
        if self._clock() < self._quiet_until:
            return
        self._quiet_until = self._clock() + _QUIET_S
        logger.warning(
            "more than %d connections have not authenticated, so the oldest are closed (%d since "
            "the start); if these are your clients and all start at once, raise "
            "max_unauthenticated_connections",
            self._limit,
            self._closed,
        )
