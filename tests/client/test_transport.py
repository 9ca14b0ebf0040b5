from __future__ import annotations

import asyncio
import socket

import pytest

from kohort.client.auth import NoAuthentication
from kohort.client.connection import Connection
from kohort.client.transport import BrokerConnection
from kohort.errors import BrokerUnavailableError
from kohort.wire import frame as frames
from kohort.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kohort.wire.messages.membership import HeartbeatRequest

SERVED = ApiVersionsResponse(
    error_code=0,
    api_keys=tuple(ApiVersion(api_key=key, min_version=0, max_version=3) for key in (12, 18)),
)


async def connected() -> tuple[BrokerConnection, socket.socket]:
    """A connection that is ready, and its other end."""
    near, far = socket.socketpair()
    near.setblocking(False)
    machine = Connection(client_id="test", authenticator=NoAuthentication(), max_in_flight=5)
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: BrokerConnection(machine, "far"), sock=near
    )
    size = int.from_bytes(far.recv(4), "big")
    asked = frames.decode_request(memoryview(far.recv(size)))
    far.sendall(frames.encode_response(SERVED, asked.version, asked.correlation_id))
    await connection.ready()
    return connection, far


@pytest.mark.parametrize("turns", range(3))
def test_whoever_asks_while_the_connection_ends_is_told_so(turns: int) -> None:
    """At each turn of the loop until then: in the last one asyncio has closed, and not yet said so.

    From Python 3.12 on, asyncio raises TypeError at whoever writes lines then.
    """

    async def ask() -> None:
        connection, far = await connected()
        far.close()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert connection.is_open
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        with pytest.raises(BrokerUnavailableError, match="far closed the connection"):
            await connection.request(request, 10_000)

    asyncio.run(ask())


def test_whoever_was_given_a_connection_that_has_ended_may_try_again() -> None:
    """Between the two the loop turns, and what ends meanwhile is not the user's mistake."""

    async def ask() -> None:
        connection, far = await connected()
        connection.connection_lost(None)
        far.close()
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        with pytest.raises(BrokerUnavailableError, match="far: the connection is closed"):
            await connection.request(request, 10_000)
        with pytest.raises(BrokerUnavailableError, match="far: the connection is closed"):
            connection.tell(request, 10_000)

    asyncio.run(ask())
