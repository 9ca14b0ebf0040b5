"""Connections whose clients have not authenticated: how many there may be, and which one goes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from ssl import SSLContext, SSLError
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from kohort.broker.net.connection import Connection

logger = logging.getLogger(__name__)

_QUIET_S = 60.0
_LINES = 10


class SparingLog:
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


class Newcomers:
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
        self.log = SparingLog(clock)
        self._waiting: dict[Connection, None] = {}
        self._closed = 0
        self._quiet_until = float("-inf")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._waiting)

    def enter(self, connection: Connection) -> None:
        """Note one, and close the oldest if it is one too many."""
        self._waiting[connection] = None
        if len(self._waiting) > self._limit:
            oldest = next(iter(self._waiting))
            self.leave(oldest)
            oldest.close()
            self._tell()

    def leave(self, connection: Connection) -> None:
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


class TlsHandshake(asyncio.Protocol):
    """A connection that was accepted and begins TLS; when it has, it is the `Connection`'s.

    Args:
        connection: What serves its requests then.
        context: What TLS works with.
        is_enough: Whether its client has authenticated with the handshake.
        log: Takes a line about one that fails.
    """

    def __init__(
        self, connection: Connection, context: SSLContext, is_enough: bool, log: SparingLog
    ) -> None:
        self._connection = connection
        self._log = log
        self._context = context
        self._is_enough = is_enough
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the connection counts from now on."""
        plain = cast("asyncio.Transport", transport)
        plain.pause_reading()  # the first bytes are for TLS
        self._connection.accepted(plain)
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(plain))

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        connection, loop = self._connection, asyncio.get_running_loop()
        peer = plain.get_extra_info("peername")
        try:
            made = await loop.start_tls(plain, connection, self._context, server_side=True)
        except OSError as error:
            warn = self._log.warning if isinstance(error, SSLError) else logger.info
            host = f"/{peer[0]}" if peer else "a client"
            warn("closing the connection of %s: no TLS handshake: %s", host, error)
            error.__traceback__ = None  # or a cycle would keep the buffers of TLS
            made = None
        if made is None or plain.is_closing():
            connection.connection_lost(None)
            return
        if self._is_enough:
            connection.authenticated()
        connection.connection_made(made)
