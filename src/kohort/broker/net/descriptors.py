"""Reports that a listener cannot accept connections for want of file descriptors."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

logger = logging.getLogger(__name__)

# asyncio pauses accepting for a second each time, and reports each attempt with a traceback.
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_QUIET_S = 60.0


class Shortage:
    """Logs at most once a minute that connections cannot be accepted, with a remedy.

    Args:
        loop: The listener's loop; other errors go to the handler that was set before.
        port: The listener's port.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self._loop = loop
        self._port = port
        self._before = loop.get_exception_handler()
        self._quiet_until = float("-inf")
        self._handler = self._handle  # one bound method, to compare by identity
        loop.set_exception_handler(self._handler)

    def end(self) -> None:
        """Restore the earlier handler, unless another one was set since."""
        if self._loop.get_exception_handler() is self._handler:
            self._loop.set_exception_handler(self._before)

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self._is_ours(context):
            self._report(context["exception"])
        elif self._before is not None:
            self._before(loop, context)
        else:
            loop.default_exception_handler(context)

    def _is_ours(self, context: dict[str, Any]) -> bool:
        error, listener = context.get("exception"), context.get("socket")
        if not isinstance(error, OSError) or error.errno not in _SHORTAGES or listener is None:
            return False
        try:
            name = listener.getsockname()
        except OSError:
            return False
        return isinstance(name, tuple) and name[1] == self._port

    def _report(self, error: OSError) -> None:
        if self._loop.time() < self._quiet_until:
            return
        self._quiet_until = self._loop.time() + _QUIET_S
        logger.warning(
            "cannot accept connections: %s; they wait until others are closed: raise the limit of "
            "open files (ulimit -n), or lower max_connections",
            error.strerror,
        )
