"""A client of a dialogue: it sends what it is told, and has a connection for each open answer."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import dataclass, field
from typing import Any

from kohort.wire.codec import frame
from kohort.wire.codec.schema import Message
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.groups import DescribeGroupsRequest
from tests.coordinator_dialogues.script import classes

ANSWER_S = 30.0
POLL_S = 0.1
METADATA = 12
_LENGTH = struct.Struct(">i")


class Connection:
    """One socket; a broker answers the requests on it one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent = 0

    async def ask(self, request: Message, version: int, client: str) -> Message:
        """Send a request and return its answer."""
        self._sent += 1
        self._writer.write(frame.encode_request(request, version, self._sent, client))
        (length,) = _LENGTH.unpack(await self._reader.readexactly(4))
        data = memoryview(await self._reader.readexactly(length))
        assert frame.correlation_id_of(data) == self._sent
        _, response = classes(type(request).__name__.removesuffix("Request"))
        return frame.decode_response(response, version, data)

    async def close(self) -> None:
        """Hang up; the broker may have done so before."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


@dataclass
class Client:
    """A client of one name; it opens another connection while an answer is still to come."""

    name: str
    address: str
    free: list[Connection] = field(default_factory=list)
    every: list[Connection] = field(default_factory=list)

    async def ask(self, request: Message, version: int) -> Message:
        """Send a request on a connection that is free, and return its answer."""
        if not self.free:
            host, port = self.address.split(":")
            opened = Connection(*await asyncio.open_connection(host, int(port)))
            self.every.append(opened)
            self.free.append(opened)
        connection = self.free.pop()
        answer = await asyncio.wait_for(connection.ask(request, version, self.name), ANSWER_S)
        self.free.append(connection)
        return answer

    async def forget(self) -> None:
        """Hang up where nothing is to come: the broker goes down."""
        for connection in self.free:
            self.every.remove(connection)
            await connection.close()
        self.free.clear()

    async def close(self) -> None:
        """Hang up, whatever is still to come."""
        for connection in self.every:
            await connection.close()
        self.free.clear()
        self.every.clear()


async def coordinators_ready(address: str) -> None:
    """Let a new broker make the log of its groups, and load every part of it."""
    client = Client("creator", address)
    await client.ask(FindCoordinatorRequest(coordinator_keys=("any",)), 4)
    groups = tuple(f"group-{number}" for number in range(50))
    deadline = asyncio.get_running_loop().time() + ANSWER_S
    while True:
        answer: Any = await client.ask(DescribeGroupsRequest(groups=groups), 5)
        codes = {group.error_code for group in answer.groups}
        if codes == {0}:
            break
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"groups are not loaded: {codes}")
        await pause(POLL_S)
    await client.close()


async def pause(seconds: float) -> None:
    """Let time pass, where nothing on the wire shows that it has."""
    await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=seconds)
