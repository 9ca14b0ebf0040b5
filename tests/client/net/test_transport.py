from __future__ import annotations

import asyncio
import socket

import pytest

from kohort.client.net.connection import Connection
from kohort.client.net.security.auth import NoAuthentication
from kohort.client.net.transport import BrokerConnection, close_all
from kohort.errors import BrokerUnavailableError, RequestTimedOutError, TlsError
from kohort.wire.codec import frame as frames
from kohort.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kohort.wire.messages.membership import HeartbeatRequest

SERVED = ApiVersionsResponse(
    error_code=0,
    api_keys=tuple(ApiVersion(api_key=key, min_version=0, max_version=3) for key in (12, 18)),
)


async def connected() -> tuple[BrokerConnection, socket.socket]:
    """A ready connection, and its other end."""
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
    """At each turn of the loop until then: in the last one, asyncio has closed but not reported it.

    Since Python 3.12, `writelines` raises TypeError then.
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
    """The loop turns in between; a connection that ends meanwhile is not the user's mistake."""

    async def ask() -> None:
        connection, far = await connected()
        connection.connection_lost(None)
        far.close()
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        with pytest.raises(BrokerUnavailableError, match="far: the connection is closed"):
            await connection.request(request, 10_000)
        with pytest.raises(BrokerUnavailableError, match="far: the connection is closed"):
            await connection.tell(request, 10_000)

    asyncio.run(ask())


def test_who_is_refused_in_a_session_may_ask_again_over_another_connection() -> None:
    """Requests in flight may have been processed; a new connection shows whether it is refused."""

    async def ask() -> None:
        connection, far = await connected()
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        asked = asyncio.ensure_future(connection.request(request, 10_000))
        await asyncio.sleep(0)
        connection.close(TlsError("far: the client's certificate has expired"))
        with pytest.raises(
            BrokerUnavailableError, match=r"could not continue: TLS_FAILED.*expired"
        ):
            await asked
        far.close()

    asyncio.run(ask())


def large() -> HeartbeatRequest:
    """More bytes than a socket accepts at once."""
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m" * 30_000)


def fill(connection: BrokerConnection) -> list[asyncio.Task[None]]:
    """Send requests without an answer until the socket accepts no more."""
    return [asyncio.ensure_future(connection.tell(large(), 60_000)) for _ in range(100)]


def read_to_the_end(far: socket.socket) -> int:
    far.settimeout(60)
    total = 0
    while data := far.recv(1 << 16):
        total += len(data)
    far.close()
    return total


def test_what_has_no_answer_is_sent_when_it_has_left_the_process() -> None:
    async def send() -> None:
        connection, far = await connected()
        told = fill(connection)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < sum(each.done() for each in told) < len(told)
        read = asyncio.create_task(asyncio.to_thread(read_to_the_end, far))
        await asyncio.gather(*told)
        connection.close()
        assert await read > 100 * 30_000

    asyncio.run(send())


def test_what_has_not_left_when_the_connection_breaks_fails() -> None:
    async def send() -> None:
        connection, far = await connected()
        told = fill(connection)
        await asyncio.sleep(0)
        far.close()
        ends = await asyncio.gather(*told, return_exceptions=True)
        assert isinstance(ends[-1], BrokerUnavailableError)

    asyncio.run(send())


def test_what_cannot_leave_in_time_ends_the_connection() -> None:
    """A part of it may have been sent, and the broker waits for the rest."""

    async def send() -> None:
        connection, far = await connected()
        told = [asyncio.ensure_future(connection.tell(large(), 50)) for _ in range(100)]
        ends = await asyncio.gather(*told, return_exceptions=True)
        assert isinstance(ends[-1], RequestTimedOutError)
        assert not connection.is_open
        far.close()

    asyncio.run(send())


def test_what_waits_for_its_turn_too_long_fails() -> None:
    """It must not be forgotten: its sender waits for the outcome."""

    async def send() -> None:
        connection, far = await connected()
        asked = [asyncio.ensure_future(connection.request(large(), 60_000)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(RequestTimedOutError, match="could not be sent in time"):
            await connection.tell(large(), 50)
        connection.close()
        await asyncio.gather(*asked, return_exceptions=True)
        far.close()

    asyncio.run(send())


def test_the_end_waits_until_the_other_side_has_read_all() -> None:
    """Unread data would make the operating system drop the bytes that it has yet to send."""

    async def send() -> None:
        connection, far = await connected()
        await connection.tell(
            HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 60_000
        )
        closing = asyncio.create_task(close_all([connection], 60))
        await asyncio.sleep(0)
        assert connection.is_open
        assert await asyncio.to_thread(read_to_the_end, far)
        await closing
        assert not connection.is_open

    asyncio.run(send())
