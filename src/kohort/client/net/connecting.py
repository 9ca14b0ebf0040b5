"""Open a connection: look up the host, connect a socket, and negotiate with the broker."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence

from msgspec import Struct

from kohort.client.net.connection import Connection
from kohort.client.net.proxy import Proxy, answered
from kohort.client.net.security.auth import NoAuthentication
from kohort.client.net.security.context import PLAINTEXT, Security
from kohort.client.net.security.tls import (
    CutInHandshakeError,
    CutUngreetedError,
    Tls,
    asking_context,
    is_from_tls,
    no_tls_there,
    tls_there,
)
from kohort.client.net.transport import BrokerConnection
from kohort.errors import BrokerUnavailableError, KohortError, RequestTimedOutError, error_text

# As `socket.getaddrinfo` has it: family, kind, protocol, canonical name, and where to connect to.
Address = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]

_SILENT = "the connection was accepted, but its first request was not answered"
_UNSECURED = "the connection was accepted, but the TLS handshake was not answered"


class Attempt(Struct, eq=False):
    """An attempt to connect.

    Attributes:
        address: `host:port`.
        phase: The step that has not succeeded yet.
        proxy: The proxy it goes through; None for a direct connection.
        end_s: When it times out, by the loop's clock; None when it has no timeout of its own.
    """

    address: str
    phase: str = "its name was not looked up"
    proxy: Proxy | None = None
    end_s: float | None = None

    def works(self, what: str | None) -> None:
        """Note what authentication waits for; None when it waits for the broker."""
        self.phase = _SILENT if what is None else f"the connection was accepted, but {what}"

    def share(self, of: int) -> float | None:
        """Return the seconds for one address, so that a silent one leaves time for the others.

        None, for the last address, means all the time left.
        """
        if self.end_s is None or of == 1:
            return None
        return max(0.0, self.end_s - asyncio.get_running_loop().time()) / of

    def __str__(self) -> str:
        through = "" if self.proxy is None else f" through {self.proxy}"
        return f"{self.address}{through}: {self.phase}"


async def connect(
    host: str,
    port: int,
    machine: Connection,
    timeout_s: float,
    attempt: Attempt | None = None,
    security: Security = PLAINTEXT,
) -> BrokerConnection:
    """Connect to the first address of `host` that answers, and make the connection ready.

    Args:
        host: The broker's host.
        port: Its port.
        machine: The connection's machine, in its first state.
        timeout_s: How long connecting may take, in seconds.
        attempt: Updated with the progress.
        security: TLS settings and proxy.

    Raises:
        BrokerUnavailableError: No address answers; the error names each address and cause.
        RemoteProtocolError: The server does not speak Kafka's protocol.
        AuthenticationError: The broker or the proxy refused the client, or the broker's certificate
            is not trusted.
        KafkaError: The broker refused the client for another reason.
    """
    attempt = attempt or Attempt(f"{host}:{port}")
    end = asyncio.get_running_loop().time() + timeout_s
    attempt.proxy, attempt.end_s, tls = security.proxy, end, security.tls
    try:
        async with asyncio.timeout_at(end):
            try:
                return await _connect(host, port, machine, attempt, tls)
            except CutInHandshakeError:
                await _refuse_without_tls(host, port, attempt.proxy)
                raise
            except CutUngreetedError:
                if tls is None:
                    await _refuse_with_tls(host, port, attempt.proxy)
                raise
    except (TimeoutError, RequestTimedOutError):
        raise BrokerUnavailableError(f"{attempt} in {timeout_s:.3g} s") from None


async def _connect(
    host: str, port: int, machine: Connection, attempt: Attempt, tls: Tls | None
) -> BrokerConnection:
    made = BrokerConnection(machine, attempt.address)
    made.on_work = attempt.works
    try:
        await _open(made, host, port, attempt, tls)
        if tls is not None:
            await made.greeted()
            attempt.phase = _SILENT
        await made.ready()
    except asyncio.CancelledError:
        made.close()
        raise
    return made


async def _open(
    made: BrokerConnection, host: str, port: int, attempt: Attempt, tls: Tls | None
) -> None:
    try:
        protocol = made if tls is None else tls.over(made, host)
        sock = await _socket(host, port, attempt)
        attempt.phase = _SILENT if tls is None else _UNSECURED
        await asyncio.get_running_loop().create_connection(lambda: protocol, sock=sock)
    except (OSError, ValueError) as error:  # ValueError: TLS refuses the host name
        raise BrokerUnavailableError(f"{attempt.address}: {_reason(error)}") from error


async def _refuse_without_tls(host: str, port: int, proxy: Proxy | None) -> None:
    """Check whether a server that closed a TLS handshake speaks Kafka's protocol without TLS.

    Asks for its versions over a separate connection; no secret is sent. This only happens after a
    connection has failed.

    Raises:
        TlsError: The server does.
    """
    address = f"{host}:{port}"
    machine = Connection(client_id="", authenticator=NoAuthentication())
    try:
        made = await _connect(host, port, machine, Attempt(address, proxy=proxy), None)
    except KohortError:
        return
    made.close()
    raise no_tls_there(address)


async def _refuse_with_tls(host: str, port: int, proxy: Proxy | None) -> None:
    """Check whether a server that closed a plaintext connection speaks TLS.

    Raises:
        TlsError: The server does.
    """
    try:
        sock = await _socket(host, port, Attempt(f"{host}:{port}", proxy=proxy))
        _, writer = await asyncio.open_connection(
            sock=sock, ssl=asking_context(), server_hostname=host
        )
    except ssl.SSLError as error:
        if is_from_tls(error):
            raise tls_there(f"{host}:{port}") from None
        return
    except (OSError, KohortError):
        return
    writer.transport.abort()
    raise tls_there(f"{host}:{port}")


async def _socket(host: str, port: int, attempt: Attempt) -> socket.socket:
    """Connect to a broker, through a proxy if there is one."""
    proxy = attempt.proxy
    if proxy is None:
        return await _direct(host, port, attempt)
    try:
        sock = await _direct(proxy.host, proxy.port, attempt)
    except BrokerUnavailableError as error:
        raise BrokerUnavailableError(f"{proxy} cannot be reached: {error.message}") from None
    attempt.phase = "the proxy did not connect to it"
    try:
        await _through(sock, proxy, host, port)
    except OSError as error:
        sock.close()
        why = f"{attempt.address}: {proxy}: {_reason(error)}"
        raise BrokerUnavailableError(why) from None
    except BaseException:
        sock.close()
        raise
    return sock


async def _through(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask the proxy to connect to the broker."""
    loop, dialogue = asyncio.get_running_loop(), proxy.dialogue(host, port)
    step = next(dialogue, None)
    while step is not None:
        received = b""
        if isinstance(step, bytes):
            await loop.sock_sendall(sock, step)
        else:
            while len(received) < step:
                more = await loop.sock_recv(sock, step - len(received))
                if not more:
                    raise proxy.closed(host, port)
                received += more
        step = answered(dialogue, received)


async def _direct(host: str, port: int, attempt: Attempt) -> socket.socket:
    found = literal(host, port) or await _looked_up(host, port)
    attempt.phase = "no server accepted the connection"
    causes: list[str] = []
    for number, each in enumerate(found):
        try:
            return await _connected(each, attempt.share(len(found) - number))
        except OSError as error:  # out of file descriptors, or the kernel lacks the address family
            causes.append(f"{_shown(host, port, each[4][0])}: {_reason(error)}")
    raise BrokerUnavailableError("; ".join(causes))


async def _connected(to: Address, timeout_s: float | None) -> socket.socket:
    family, kind, protocol, _, address = to
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _reason(error: OSError | ValueError) -> str:
    # asyncio's own text hides the reason behind "Connect call failed"
    if isinstance(error, TimeoutError) and not error.errno:
        return "no answer"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else error_text(error)


async def _looked_up(host: str, port: int) -> Sequence[Address]:
    try:
        asked = asyncio.get_running_loop().run_in_executor(None, look_up, host, port)
    except RuntimeError:  # the process is exiting, and threads can no longer be started
        return look_up(host, port)
    return await asked


def _shown(host: str, port: int, address: str | int) -> str:
    return f"{host}:{port}" if host == address else f"{host}:{port} ({address})"


# The name of a host may come from a broker, so it may be anything.


def literal(host: str, port: int) -> Sequence[Address]:
    """Return the address if `host` is an IP literal, else nothing; never queries a resolver.

    Args:
        host: A host name, or an IPv4 or IPv6 address.
        port: The port to combine with the address.
    """
    try:
        return _look_up(host, port, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ()


def look_up(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host; blocks while the resolver works.

    Args:
        host: A host name.
        port: The port to combine with each address.

    Raises:
        BrokerUnavailableError: The host has no address, or its name is not a valid host name.
    """
    try:
        return _look_up(host, port, 0)
    except OSError as error:
        cause = error.strerror or error_text(error)
    except UnicodeError:
        cause = "not a valid host name"
    raise BrokerUnavailableError(f"{host}:{port}: {cause}")


def _look_up(host: str, port: int, flags: int) -> Sequence[Address]:
    # To import Python's codec for international names takes longer than to connect.
    name = host.encode() if host.isascii() else host
    return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags)
