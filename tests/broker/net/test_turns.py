"""Connections are served in turns, however many requests a client pipelines."""

from __future__ import annotations

import asyncio
import os
import socket
import struct

from kohort.broker.net.connection import Connection
from kohort.wire.codec.limits import DEFAULT_LIMITS
from kohort.wire.codec.schema import Buffer

AHEAD = 1_000


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_nobody_waits_for_all_that_another_has_sent_ahead() -> None:
    asyncio.run(two_clients())


async def two_clients() -> None:
    loop = asyncio.get_running_loop()
    served: list[bytes] = []

    def serve(frame: memoryview, _host: str) -> list[Buffer]:
        served.append(bytes(frame))
        return [framed(bytes(frame))]

    def connect() -> Connection:
        return Connection(serve, set(), DEFAULT_LIMITS)

    server = await loop.create_server(connect, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    busy_reader, busy = await asyncio.open_connection(*address)
    other_reader, other = await asyncio.open_connection(*address)
    # Both arrive before the loop handles either; it handles them in this order.
    for writer, bodies in ((busy, [b"busy"] * AHEAD), (other, [b"other"])):
        sock = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
        with sock:
            sock.sendall(b"".join(map(framed, bodies)))
    await other_reader.readexactly(len(framed(b"other")))
    await busy_reader.readexactly(AHEAD * len(framed(b"busy")))
    assert served.count(b"busy") == AHEAD
    assert served.index(b"other") < 50
    for writer in (busy, other):
        writer.close()
        await writer.wait_closed()
    server.close()
