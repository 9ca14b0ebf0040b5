"""A pipelined connection for benchmarks that send thousands of requests per second."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TypeVar, cast

from kohort.wire import apis
from kohort.wire.codec import frame
from kohort.wire.codec.schema import Message, Request

R = TypeVar("R", bound=Message)

_LENGTH = struct.Struct(">i")


class Line(asyncio.Protocol):
    """One connection; any number of requests may be in flight, and responses arrive in order."""

    def __init__(self) -> None:
        """Use `connect`."""
        self._transport: asyncio.Transport | None = None
        self._rest = bytearray()
        self._waiting: deque[tuple[type[Message], int, asyncio.Future[Message]]] = deque()

    @classmethod
    async def connect(cls, servers: str) -> Line:
        """Open a connection."""
        host, port = servers.split(":")
        _, line = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass complete responses to their waiters."""
        self._rest += data
        at = 0
        view = memoryview(self._rest)
        while len(view) - at >= 4:
            end = at + 4 + _LENGTH.unpack_from(view, at)[0]
            if end > len(view):
                break
            cls, version, future = self._waiting.popleft()
            future.set_result(frame.decode_response(cls, version, view[at + 4 : end]))
            at = end
        view.release()
        del self._rest[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests."""
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(exc or ConnectionError("the broker closed the connection"))

    def ask(self, request: Request[R], version: int) -> asyncio.Future[R]:
        """Send a request; the future gets its response."""
        assert self._transport is not None
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting.append((apis.response_class(request.api_key), version, future))
        self._transport.write(frame.encode_request(request, version, 0, "benchmark"))
        return cast("asyncio.Future[R]", future)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()
