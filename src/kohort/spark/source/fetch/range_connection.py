"""Blocking connections for Spark's executors: the state machine of `connection` on a socket.

A process keeps its connections: a Spark worker reads one range after another, and would otherwise
spend most of its time connecting. A forked process never uses its parent's connections.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from inspect import isawaitable
from typing import TypeVar, cast

from kohort.client.net.connecting import Address, look_up
from kohort.client.net.connection import (
    Answered,
    BecameReady,
    Connection,
    ConnectionState,
    Failed,
    Throttled,
    WorkWanted,
)
from kohort.client.net.frames import log_throttle, told_of
from kohort.client.net.proxy import Proxy, answered
from kohort.client.net.security.auth import NoAuthentication, Work
from kohort.client.net.security.context import PLAINTEXT, Security
from kohort.client.net.security.tls import (
    CUT_IN_HANDSHAKE,
    asking_context,
    explained,
    is_from_tls,
    no_tls_there,
    tls_there,
)
from kohort.client.net.transport import refused, work_failed
from kohort.errors import (
    BrokerUnavailableError,
    KafkaError,
    KohortError,
    RemoteProtocolError,
    RequestTimedOutError,
    error_text,
)
from kohort.wire.codec.schema import Message, Request

R = TypeVar("R", bound=Message)

# Size of the buffer that a connection reuses; a larger frame gets its own buffer.
MAX_KEPT_BUFFER = 16 * 1024 * 1024

# Maximum number of idle connections kept per broker; a Spark worker needs one.
MAX_IDLE = 4


def now_ms() -> int:
    """Return the time in milliseconds, from an arbitrary start."""
    return int(time.monotonic() * 1000)


class _FrameMemory:
    """Memory for one frame at a time, reused so that its pages stay mapped."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def allocate(self, size: int) -> memoryview:
        if size > MAX_KEPT_BUFFER:
            return memoryview(bytearray(size))
        if size > len(self._kept):
            self._kept = bytearray(min(MAX_KEPT_BUFFER, size + size // 4))
        return memoryview(self._kept)[:size]


class BlockingConnection:
    """One socket, used by one thread at a time, with at most one request unanswered.

    The records of a response are in memory that the next response overwrites.

    Args:
        host: The broker's host.
        port: Its port.
        client_id: The client id.
        timeout_ms: Timeout for connecting, in milliseconds.
        security: Encryption and authentication settings.

    Attributes:
        used_at_s: When it was last returned to the pool, in seconds of the monotonic clock.

    Raises:
        BrokerUnavailableError: No broker answers there; the message names each address and cause.
        AuthenticationError: The broker refuses the client, or its certificate is not trusted.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_ms: int,
        security: Security = PLAINTEXT,
    ) -> None:
        self.address = f"{host}:{port}"
        self.used_at_s = time.monotonic()
        self._machine = Connection(
            client_id=client_id,
            authenticator=security.authenticator,
            host=host,
            max_in_flight=1,
            setup_timeout_ms=timeout_ms,
            allocate=_FrameMemory().allocate,
        )
        self._answer: tuple[int, Message | KohortError] | None = None
        self._is_ready = False
        end = time.monotonic() + timeout_ms / 1000
        self._socket = _open_socket(host, port, end, security.proxy)
        if security.tls is not None:
            self._socket = _secured(self._socket, host, port, end, security)
        self._machine.opened(now_ms())
        try:
            while not self._is_ready:
                self._turn()
        except BrokerUnavailableError:
            if security.tls is None and self._machine.state is ConnectionState.NEGOTIATING:
                _refuse_with_tls(host, port, end, security.proxy)
            raise

    def send(self, request: Request[R], timeout_ms: int, *, at_most: int | None = None) -> int:
        """Send a request and return the token of its response.

        Args:
            request: The request.
            timeout_ms: Timeout for the response, in milliseconds.
            at_most: Maximum version of the request.
        """
        general = cast("Request[Message]", request)
        token = self._machine.submit(general, now_ms(), timeout_ms, at_most=at_most)
        self._flush()
        return token

    def answer(self, token: int) -> Message:
        """Wait for a response.

        Raises:
            KafkaError: None arrived in time, or the connection broke; the connection is then
                closed.
            RemoteProtocolError: The peer does not speak Kafka's protocol; the connection is then
                closed.
        """
        while self._answer is None or self._answer[0] != token:
            self._turn()
        outcome = self._answer[1]
        self._answer = None
        if isinstance(outcome, KohortError):
            raise outcome
        return outcome

    def request(self, request: Request[R], timeout_ms: int, *, at_most: int | None = None) -> R:
        """Send a request and wait for its response; see `send` and `answer`."""
        return cast("R", self.answer(self.send(request, timeout_ms, at_most=at_most)))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _turn(self) -> None:
        """Send pending bytes, then wait for input or for the next deadline."""
        self._flush()
        if self._answer is not None:
            return
        due = self._machine.next_deadline()
        left_ms = 1 if due is None else max(1, due - now_ms())
        try:
            self._socket.settimeout(left_ms / 1000)
            count = self._socket.recv_into(self._machine.buffer())
        except TimeoutError:
            self._expire()
        except OSError as error:
            raise self._broken(error) from None
        else:
            self._received(count)
        self._collect()

    def _received(self, count: int) -> None:
        if count == 0:
            self.close()
            raise BrokerUnavailableError(f"{self.address}: closed by the peer")
        self._give(partial(self._machine.received, count))

    def _give(self, something: Callable[[int], None]) -> None:
        """Pass an event to the machine, with the time."""
        try:
            something(now_ms())
        except RemoteProtocolError as error:
            self.close()
            raise told_of(self.address, error) from None
        except KafkaError as error:
            raise self._refused(error) from error.__cause__

    def _expire(self) -> None:
        error = self._machine.expire(now_ms())
        if error is not None:
            self.close()
            why = str(error).removeprefix("REQUEST_TIMED_OUT: ")
            raise RequestTimedOutError(f"{self.address}: {why}")

    def _flush(self) -> None:
        try:
            for frame in self._machine.output(now_ms()):
                self._socket.sendall(frame)
        except OSError as error:
            raise self._broken(error) from None
        self._collect()

    def _collect(self) -> None:
        for event in self._machine.events():
            if isinstance(event, BecameReady):
                self._is_ready = True
            elif isinstance(event, WorkWanted):
                self._work(event.work)
            elif isinstance(event, Throttled):
                log_throttle(self.address, event.asked_ms, event.pause_ms)
            elif isinstance(event, Answered):
                self._answer = (event.token, event.response)
            elif isinstance(event, Failed):
                self._answer = (event.token, event.error)

    def _work(self, work: Work) -> None:
        """Do the work required by authentication, and continue."""
        try:
            result = work.run()
            if isawaitable(result):
                result = asyncio.run(_awaited(result))
        except Exception as error:  # noqa: BLE001  # the provider's own error, raised when awaited
            failed = self._refused(work_failed(error))
            raise failed from failed.__cause__
        self._give(partial(self._machine.worked, result))

    def _refused(self, error: KohortError) -> KohortError:
        self.close()
        return refused(error, self.address, in_session=self._machine.was_ready)

    def _broken(self, error: OSError) -> KohortError:
        self.close()
        if isinstance(error, ssl.SSLError):
            return self._refused(explained(error, self.address))
        return BrokerUnavailableError(f"{self.address}: {error.strerror or error}")


async def _awaited(something: Awaitable[object]) -> object:
    return await something


def _secured(
    sock: socket.socket, host: str, port: int, end: float, security: Security
) -> socket.socket:
    """Do the TLS handshake; the socket is closed if it fails."""
    address, tls = f"{host}:{port}", security.tls
    assert tls is not None
    try:
        # `wrap_socket` would leak the socket if it rejects the host name.
        tls.context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=host.rstrip("."))
        sock.settimeout(max(0.001, end - time.monotonic()))
        return tls.context.wrap_socket(sock, server_hostname=host.rstrip("."))
    except TimeoutError:
        sock.close()
        raise BrokerUnavailableError(f"{address}: no answer to the TLS handshake") from None
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
        sock.close()
        _refuse_without_tls(host, port, end, security.proxy)
        raise BrokerUnavailableError(f"{address} {CUT_IN_HANDSHAKE}") from None
    except ssl.SSLError as error:
        sock.close()
        raise explained(error, address) from None
    except (OSError, ValueError) as error:  # ValueError: TLS refuses the host name
        sock.close()
        raise BrokerUnavailableError(f"{address}: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or error_text(error)


def _refuse_without_tls(host: str, port: int, end: float, proxy: Proxy | None) -> None:
    """Find out whether a server that closed a TLS handshake speaks Kafka's protocol without TLS."""
    timeout_ms = max(1, int((end - time.monotonic()) * 1000))
    try:
        readable = Security(None, NoAuthentication(), proxy)
        BlockingConnection(host, port, "", timeout_ms, readable).close()
    except KohortError:
        return
    raise no_tls_there(f"{host}:{port}")


def _refuse_with_tls(host: str, port: int, end: float, proxy: Proxy | None) -> None:
    """Find out whether a server that closed a connection without TLS speaks TLS."""
    try:
        sock = _open_socket(host, port, end, proxy)
    except KohortError:
        return
    try:
        sock.settimeout(max(0.001, end - time.monotonic()))
        asking_context().wrap_socket(sock).close()
    except ssl.SSLError as error:
        if not is_from_tls(error):
            return
    except OSError:
        return
    finally:
        sock.close()
    raise tls_there(f"{host}:{port}")


def _open_socket(host: str, port: int, end: float, proxy: Proxy | None) -> socket.socket:
    """Connect to a broker, through a proxy if there is one."""
    if proxy is None:
        return _direct(host, port, end)
    try:
        sock = _direct(proxy.host, proxy.port, end)
    except BrokerUnavailableError as error:
        raise BrokerUnavailableError(f"{proxy} cannot be reached: {error.message}") from None
    try:
        _through(sock, end, proxy, host, port)
    except OSError as error:
        sock.close()
        raise BrokerUnavailableError(f"{host}:{port}: {proxy}: {_reason(error)}") from None
    except BaseException:
        sock.close()
        raise
    return sock


def _through(sock: socket.socket, end: float, proxy: Proxy, host: str, port: int) -> None:
    """Connect through the proxy."""
    dialogue = proxy.dialogue(host, port)
    step = next(dialogue, None)
    while step is not None:
        sock.settimeout(max(0.001, end - time.monotonic()))
        received = b""
        if isinstance(step, bytes):
            sock.sendall(step)
        else:
            while len(received) < step:
                more = sock.recv(step - len(received))
                if not more:
                    raise proxy.closed(host, port)
                received += more
        step = answered(dialogue, received)


def _direct(host: str, port: int, end: float) -> socket.socket:
    """Connect to the first address of the host that answers."""
    found = look_up(host, port)
    causes: list[str] = []
    for number, each in enumerate(found):
        left_s = max(0.001, end - time.monotonic())
        try:  # a silent address leaves time for the others
            return _connected(each, left_s / (len(found) - number))
        except OSError as error:  # out of descriptors, or an address family the kernel lacks
            causes.append(f"{each[4][0]}:{port}: {_reason(error)}")
    raise BrokerUnavailableError("; ".join(causes))


def _connected(to: Address, timeout_s: float) -> socket.socket:
    family, kind, protocol, _, address = to
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(timeout_s)
        sock.connect(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


class ConnectionPool:
    """The idle connections of this process, by broker address and connection settings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._idle: dict[tuple[str, int, Hashable], list[BlockingConnection]] = {}

    def take(
        self, host: str, port: int, made: Hashable, max_idle_ms: int
    ) -> BlockingConnection | None:
        """Return an idle connection, or None; the caller owns it.

        Args:
            host: The broker's host.
            port: Its port.
            made: Client id and security with which the connection was created.
            max_idle_ms: Maximum idle time in milliseconds; older connections are closed, because a
                device on the path may have dropped them.
        """
        since_s = time.monotonic() - max_idle_ms / 1000
        with self._lock:
            self._forget_parents()
            idle = self._idle.get((host, port, made), [])
            while idle:
                if (found := idle.pop()).used_at_s >= since_s:
                    return found
                found.close()
        return None

    def give(self, host: str, port: int, made: Hashable, connection: BlockingConnection) -> None:
        """Return a connection without an unanswered request to the pool."""
        with self._lock:
            self._forget_parents()
            idle = self._idle.setdefault((host, port, made), [])
            if len(idle) < MAX_IDLE:
                connection.used_at_s = time.monotonic()
                idle.append(connection)
                return
        connection.close()

    def clear(self) -> None:
        """Close all idle connections."""
        with self._lock:
            self._close(self._idle.values())
            self._idle.clear()

    def _forget_parents(self) -> None:
        if self._pid != os.getpid():
            # Closing our copy of the descriptor does not affect the parent's connection.
            self._close(self._idle.values())
            self._idle.clear()
            self._pid = os.getpid()

    @staticmethod
    def _close(groups: Iterable[list[BlockingConnection]]) -> None:
        for group in groups:
            for connection in group:
                connection.close()
