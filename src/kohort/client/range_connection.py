"""Blocking connections for Spark's executors: the machine of `connection` on a plain socket.

A process keeps its connections: a Spark worker reads one range after another, and would spend most
of its time with connecting otherwise. A forked process never uses those of its parent.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable
from typing import TypeVar, cast

from kohort.client.addresses import look_up
from kohort.client.auth import NoAuthentication
from kohort.client.connection import Answered, BecameReady, Connection
from kohort.client.frames import told_of
from kohort.errors import (
    BrokerUnavailableError,
    KohortError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.wire.schema import Message, Request

R = TypeVar("R", bound=Message)

# What a connection keeps for the next frame; a larger one is made for its frame alone.
MAX_KEPT_BUFFER = 16 * 1024 * 1024

# Idle connections to one broker that are kept; a Spark worker needs one.
MAX_IDLE = 4


def now_ms() -> int:
    """Return the time in milliseconds, from an arbitrary start."""
    return int(time.monotonic() * 1000)


class _FrameMemory:
    """Memory for one frame at a time: pages that were touched once are not touched anew."""

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

    The records of an answer lie in memory that the next answer overwrites.

    Args:
        host: The broker's host.
        port: Its port.
        client_id: What the client calls itself.
        timeout_ms: How long connecting may take.

    Raises:
        BrokerUnavailableError: Nobody answers there; names each address and cause.
    """

    def __init__(self, host: str, port: int, client_id: str, timeout_ms: int) -> None:
        self.address = f"{host}:{port}"
        self._machine = Connection(
            client_id=client_id,
            authenticator=NoAuthentication(),
            max_in_flight=1,
            setup_timeout_ms=timeout_ms,
            allocate=_FrameMemory().allocate,
        )
        self._answer: tuple[int, Message | KohortError] | None = None
        self._is_ready = False
        self._socket = _open_socket(host, port, timeout_ms / 1000)
        self._machine.opened(now_ms())
        while not self._is_ready:
            self._turn()

    def send(self, request: Request[R], timeout_ms: int, *, at_most: int | None = None) -> int:
        """Send a request and return the token of its answer.

        Args:
            request: The request.
            timeout_ms: How long its answer may take.
            at_most: Newest version to write it in.
        """
        general = cast("Request[Message]", request)
        token = self._machine.submit(general, now_ms(), timeout_ms, at_most=at_most)
        self._flush()
        return token

    def answer(self, token: int) -> Message:
        """Wait for an answer.

        Raises:
            KafkaError: There was none in time, or the connection broke; it is closed then.
            RemoteProtocolError: The peer does not speak Kafka's protocol; likewise.
        """
        while self._answer is None or self._answer[0] != token:
            self._turn()
        outcome = self._answer[1]
        self._answer = None
        if isinstance(outcome, KohortError):
            raise outcome
        return outcome

    def request(self, request: Request[R], timeout_ms: int, *, at_most: int | None = None) -> R:
        """Send a request and wait for its answer; arguments and errors as `send`, `answer`."""
        return cast("R", self.answer(self.send(request, timeout_ms, at_most=at_most)))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _turn(self) -> None:
        """Send what may be sent, then wait for bytes or for the next deadline."""
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
            raise self._broken(error.strerror or str(error)) from None
        else:
            self._received(count)
        self._collect()

    def _received(self, count: int) -> None:
        if count == 0:
            raise self._broken("closed by the peer")
        try:
            self._machine.received(count, now_ms())
        except RemoteProtocolError as error:
            self.close()
            raise told_of(self.address, error) from None

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
            raise self._broken(error.strerror or str(error)) from None
        self._collect()

    def _collect(self) -> None:
        for event in self._machine.events():
            if isinstance(event, BecameReady):
                self._is_ready = True
            elif isinstance(event, Answered):
                self._answer = (event.token, event.response)
            else:
                self._answer = (event.token, event.error)

    def _broken(self, cause: str) -> BrokerUnavailableError:
        self.close()
        return BrokerUnavailableError(f"{self.address}: {cause}")


def _open_socket(host: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to the first address of the host that answers."""
    found = look_up(host, port)
    end = time.monotonic() + timeout_s
    causes: list[str] = []
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(0.001, end - time.monotonic()))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            causes.append(f"{address[0]}:{port}: {error.strerror or error}")
        else:
            return sock
    raise BrokerUnavailableError("; ".join(causes))


class ConnectionPool:
    """The idle connections of this process, by broker address and client id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._idle: dict[tuple[str, int, str], list[BlockingConnection]] = {}

    def take(self, host: str, port: int, client_id: str) -> BlockingConnection | None:
        """Return an idle connection, or None; whoever takes it owns it."""
        with self._lock:
            self._forget_parents()
            idle = self._idle.get((host, port, client_id))
            return idle.pop() if idle else None

    def give(self, host: str, port: int, client_id: str, connection: BlockingConnection) -> None:
        """Keep a connection that has no unanswered request."""
        with self._lock:
            self._forget_parents()
            idle = self._idle.setdefault((host, port, client_id), [])
            if len(idle) < MAX_IDLE:
                idle.append(connection)
                return
        connection.close()

    def clear(self) -> None:
        """Close what is idle."""
        with self._lock:
            self._close(self._idle.values())
            self._idle.clear()

    def _forget_parents(self) -> None:
        if self._pid != os.getpid():
            # Closing our copy of the descriptor leaves the parent's connection alone.
            self._close(self._idle.values())
            self._idle.clear()
            self._pid = os.getpid()

    @staticmethod
    def _close(groups: Iterable[list[BlockingConnection]]) -> None:
        for group in groups:
            for connection in group:
                connection.close()
