"""A proxy on loopback: SOCKS5 or HTTP CONNECT, with a password or without."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from msgspec import Struct, field

Address: TypeAlias = tuple[str, int]


class Passing(Struct, kw_only=True):
    """The behaviour of a proxy.

    Attributes:
        user: The allowed user, with a password; None for everyone.
        names: Its replacements of host names.
        refuses: Its answer when it refuses to connect; "" to connect.
        port: Its port.
        asked: The requested addresses.
    """

    user: tuple[str, str] | None = None
    names: Mapping[str, Address] = field(default_factory=dict)
    refuses: bytes = b""
    port: int = 0
    asked: list[Address] = field(default_factory=list)

    def found(self, host: str, port: int) -> Address:
        self.asked.append((host, port))
        return self.names.get(host, (host, port))


class _ClosedError(Exception):
    pass


@asynccontextmanager
async def passing(kind: str, does: Passing) -> AsyncIterator[Passing]:
    """Serve; `kind` is "socks5" or "http"."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(_ClosedError, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            greet = _socks if kind == "socks5" else _http
            host, port = await greet(reader, writer, does)
            there, to = await asyncio.open_connection(host, port)
            await asyncio.gather(_pump(reader, to), _pump(there, writer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    does.port = server.sockets[0].getsockname()[1]
    try:
        yield does
    finally:
        server.close()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
    finally:
        writer.close()


async def _socks(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, does: Passing
) -> Address:
    _, count = await reader.readexactly(2)
    methods = await reader.readexactly(count)
    wanted = 2 if does.user else 0
    if wanted not in methods:
        writer.write(b"\5\xff")
        raise _ClosedError
    writer.write(bytes([5, wanted]))
    if does.user:
        _, length = await reader.readexactly(2)
        user = (await reader.readexactly(length)).decode()
        (length,) = await reader.readexactly(1)
        password = (await reader.readexactly(length)).decode()
        writer.write(b"\1\0" if (user, password) == does.user else b"\1\1")
        if (user, password) != does.user:
            raise _ClosedError
    _, _, _, family = await reader.readexactly(4)
    if family == 3:
        (length,) = await reader.readexactly(1)
        host = (await reader.readexactly(length)).decode()
    else:
        host = ".".join(str(each) for each in await reader.readexactly(4))
    port = int.from_bytes(await reader.readexactly(2), "big")
    found = does.found(host, port)
    if does.refuses:
        writer.write(does.refuses)
        raise _ClosedError
    writer.write(b"\5\0\0\3\4name\0\1")
    return found


async def _http(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, does: Passing
) -> Address:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    pair = base64.b64encode(":".join(does.user or ()).encode()).decode()
    if does.user and f"Proxy-Authorization: Basic {pair}\r\n" not in head:
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        raise _ClosedError
    host, _, port = head.split()[1].rpartition(":")
    found = does.found(host, int(port))
    if does.refuses:
        writer.write(does.refuses)
        raise _ClosedError
    for part in (b"HTTP/1.1 200 Connection", b" established\r\nVia: 1.1 test\r\n", b"\r\n"):
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    return found
