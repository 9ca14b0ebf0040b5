"""A client's connection: request frames in, responses out, in the order of the requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, cast

from kohort.broker.faults import DisconnectError, LastAnswer
from kohort.broker.net.receiver import FrameReceiver
from kohort.broker.net.unauthenticated import UnauthenticatedConnections
from kohort.errors import RemoteProtocolError
from kohort.wire.codec.frame import ForeignProtocolError
from kohort.wire.codec.limits import Limits
from kohort.wire.codec.schema import Buffer

logger = logging.getLogger(__name__)

Answer: TypeAlias = "list[Buffer] | None"
Serve: TypeAlias = Callable[[memoryview, str], "Answer | Awaitable[Answer]"]

# Size of the buffer for small frames until the client has authenticated.
UNAUTHENTICATED_BYTES = 4 * 1024
# A client may pipeline this many requests; later ones stay in the socket.
_MAX_WAITING = 32
# After this many requests other connections get their turn: no client may delay the others.
_REQUESTS_PER_TURN = 4
# asyncio copies the bytes that the socket does not take, so writes are at most this large.
_WRITE_BYTES = 1024 * 1024


class Connection(asyncio.BufferedProtocol):
    """Serves one request at a time, as Kafka does, and reads no further than needed.

    The broker stops reading from a client that does not read its responses: one response is
    buffered.
    """

    def __init__(
        self,
        serve: Serve,
        open_connections: set[Connection],
        limits: Limits,
        unauthenticated: UnauthenticatedConnections | None = None,
    ) -> None:
        """Create the protocol of a new connection.

        Args:
            serve: Returns the pieces of the response frame for a request frame and the client's
                address, now or later; None if there is no response.
            open_connections: The set that the connection adds itself to while it is open.
            limits: Bounds on incoming requests.
            unauthenticated: The connections that have yet to authenticate; this one is added;
                None if clients need not authenticate.
        """
        self._serve = serve
        self._open = open_connections
        self._limits = limits
        self._unauthenticated = unauthenticated
        self._receiver = (
            FrameReceiver(limits.max_frame_bytes)
            if unauthenticated is None
            else FrameReceiver(limits.max_unauthenticated_frame_bytes, UNAUTHENTICATED_BYTES)
        )
        self._max_waiting = _MAX_WAITING if unauthenticated is None else 1
        self._below: asyncio.Transport | None = None
        self._waiting: deque[memoryview] = deque()
        self._unsent: deque[memoryview] = deque()
        self._transport: asyncio.Transport | None = None
        self._pending: asyncio.Future[Answer] | None = None
        self._writable = True
        self._reading = True
        self._next_turn: asyncio.Handle | None = None
        self.host = ""
        self.certificate: Mapping[str, object] | None = None
        self.last_active = 0.0

    # --------------------------------------------------------------------------- authentication

    def accepted(self, transport: asyncio.Transport) -> None:
        """Register as open; with TLS, `transport` is the one below it."""
        self._below = transport
        self._open.add(self)
        if self._unauthenticated is not None:
            self._unauthenticated.enter(self)
        self._touch()

    def authenticated(self) -> None:
        """Lift the limits on unauthenticated clients."""
        if self._unauthenticated is None:
            return
        self._unauthenticated.leave(self)
        self._unauthenticated, self._max_waiting = None, _MAX_WAITING
        self._receiver.widen(self._limits.max_frame_bytes)

    # ------------------------------------------------------------------------- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving."""
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop: no subclass
        if self._below is None:
            self.accepted(transport)
        # With a limit of 0, asyncio's TLS takes an empty buffer for full and would never resume.
        has_tls = transport.get_extra_info("ssl_object") is not None
        transport.set_write_buffer_limits(high=1 if has_tls else 0)
        peer = transport.get_extra_info("peername")
        self.host = f"/{peer[0]}" if peer else ""
        self.certificate = transport.get_extra_info("peercert")
        self._go_on()  # requests may have arrived with the end of the TLS handshake

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # the receiver sizes it
        """Return the buffer for the next bytes."""
        return self._receiver.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Process bytes that have arrived."""
        self._touch()
        try:
            self._waiting.extend(self._receiver.received(nbytes))
        except RemoteProtocolError as error:
            self._refuse(error)
            return
        self._go_on()

    def eof_received(self) -> bool:
        """Close once the client has closed its end."""
        return False

    def pause_writing(self) -> None:
        """Stop sending and serving until the client has read."""
        self._writable = False

    def resume_writing(self) -> None:
        """Resume, as the client has read."""
        self._writable = True
        self._send()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # any cause
        """Cancel what is pending and release the buffers."""
        self._open.discard(self)
        if self._unauthenticated is not None:
            self._unauthenticated.leave(self)
        self._waiting.clear()
        self._unsent.clear()
        self._transport = self._below = None
        # Garbage collection may be late, so the buffers are released now.
        self._receiver.drop()
        if self._pending is not None:
            self._pending.cancel()
        if self._next_turn is not None:
            self._next_turn.cancel()

    def close(self) -> None:
        """Close the connection."""
        transport = self._transport or self._below
        if transport is not None:
            transport.abort()

    # ------------------------------------------------------------------------------- inside

    def _go_on(self) -> None:
        if self._next_turn is None:
            self._take_turn()
        else:
            self._balance_reading()

    def _take_turn(self) -> None:
        """Serve some of the waiting requests, and the rest after the other connections."""
        self._next_turn = None
        served = 0
        while self._waiting and self._writable and self._pending is None and self._transport:
            if served == _REQUESTS_PER_TURN:
                self._next_turn = asyncio.get_running_loop().call_soon(self._take_turn)
                break
            served += 1
            try:
                answer = self._serve(self._waiting.popleft(), self.host)
            except Exception as error:  # noqa: BLE001  # logged; only this connection closes
                self._refuse(error)
                return
            if isinstance(answer, Awaitable):
                self._pending = asyncio.ensure_future(answer)
                self._pending.add_done_callback(self._answered)
            elif answer is not None:
                self._give(answer)
        self._balance_reading()

    def _send(self) -> None:
        """Write as much as the socket takes; while bytes are left, no more requests are served."""
        while self._unsent and self._writable and self._transport is not None:
            piece = self._unsent.popleft()
            self._transport.write(piece[:_WRITE_BYTES])
            if len(piece) > _WRITE_BYTES:
                self._unsent.appendleft(piece[_WRITE_BYTES:])

    def _answered(self, future: asyncio.Future[Answer]) -> None:
        self._pending = None
        if future.cancelled() or self._transport is None:
            return
        error = future.exception()
        if error is not None:
            self._refuse(error)
            return
        answer = future.result()
        if answer is not None:
            self._give(answer)
        self._go_on()

    def _give(self, answer: list[Buffer]) -> None:
        self._unsent.extend(map(memoryview, answer))
        self._send()
        if isinstance(answer, LastAnswer) and self._transport is not None:
            self._transport.close()  # after the pending bytes are written

    def _balance_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        enough = len(self._waiting) < self._max_waiting
        if enough != self._reading:
            self._reading = enough
            (self._transport.resume_reading if enough else self._transport.pause_reading)()

    def _refuse(self, error: BaseException) -> None:
        """Close after a protocol error of the client or a failure here."""
        warn = (
            logger.warning if self._unauthenticated is None else self._unauthenticated.log.warning
        )
        if isinstance(error, DisconnectError):
            logger.info("closing the connection of %s: an injected fault", self.host)
        elif isinstance(error, ForeignProtocolError):
            warn(
                "closing the connection of %s: the client speaks %s, but this listener accepts only"
                " Kafka's protocol without encryption (security.protocol=PLAINTEXT)",
                self.host,
                error.protocol,
            )
        elif isinstance(error, RemoteProtocolError):
            warn("closing the connection of %s: %s", self.host, error)
        else:
            logger.error("a request of %s failed", self.host, exc_info=error)
        self._waiting.clear()
        self.close()

    def _touch(self) -> None:
        self.last_active = asyncio.get_running_loop().time()
