"""A connection on asyncio: the machine of `connection` with a socket."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar, cast

from kohort.client.addresses import Address, literal, look_up
from kohort.client.connection import (
    Answered,
    BecameReady,
    Connection,
    ConnectionState,
    Failed,
)
from kohort.client.frames import told_of
from kohort.errors import (
    BrokerUnavailableError,
    KohortError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.values import dataclass
from kohort.wire.schema import Message, Request

log = logging.getLogger("kohort.client")

R = TypeVar("R", bound=Message)

Ended: TypeAlias = Answered | Failed

# Of a request that was never given to the machine.
_NO_TOKEN = 0

_SILENT = "the connection was accepted, but its first request was not answered"
_UNGREETED = " before it answered the first request (a listener that wants TLS may do so)"


def now_ms() -> int:
    """Return the time of the running loop in milliseconds."""
    return int(asyncio.get_running_loop().time() * 1000)


class BrokerConnection(asyncio.BufferedProtocol):
    """One socket, owned by one loop.

    Args:
        machine: The connection's machine, in its first state.
        address: `host:port`, for messages.

    Attributes:
        on_silence: Called with the name of a request that was not answered in time.
        on_garbled: Called with the address and what is wrong when what came is no answer.
        on_first_answer: Called when a request that the user gave is answered for the first time.
    """

    def __init__(self, machine: Connection, address: str) -> None:
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._asked: dict[int, Callable[[Ended], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.on_silence: Callable[[str], None] | None = None
        self.on_garbled: Callable[[str, RemoteProtocolError], None] | None = None
        self.on_first_answer: Callable[[], None] | None = None

    # ------------------------------------------------------------------------------ the user

    @property
    def is_open(self) -> bool:
        """Whether requests can be given."""
        return self._machine.state is not ConnectionState.CLOSED

    @property
    def load(self) -> int:
        """How many requests are unanswered."""
        return self._machine.load

    @property
    def unanswered(self) -> str | None:
        """Name of the request whose answer is the next to come, None when there is none."""
        return self._machine.unanswered

    def serves(self, request: type[Message]) -> bool:
        """Whether the broker serves a request (KIP-35)."""
        return self._machine.serves(request)

    async def request(
        self, request: Request[R], timeout_ms: int, *, at_most: int | None = None
    ) -> R:
        """Send a request and return its answer.

        Args:
            request: The request.
            timeout_ms: How long to wait.
            at_most: Newest version to write it in.

        Raises:
            KafkaError: There was no answer in time, the connection broke, or the broker does not
                serve the request.
            RemoteProtocolError: The answer is not Kafka's protocol.
        """
        future: asyncio.Future[Message] = self._loop.create_future()
        self.ask(request, timeout_ms, partial(_settle, future), at_most=at_most)
        return cast("R", await future)

    def ask(
        self,
        request: Request[R],
        timeout_ms: int,
        told: Callable[[Ended], None],
        *,
        at_most: int | None = None,
    ) -> None:
        """Send a request and have `told` called with its answer, or with why there is none.

        The call comes while the answer is received, or at once, and must not raise.
        """
        if not self.is_open:
            told(Failed(_NO_TOKEN, self._lost()))
            return
        general = cast("Request[Message]", request)
        token = self._machine.submit(general, now_ms(), timeout_ms, at_most=at_most)
        self._asked[token] = told
        self._flush()

    def tell(self, request: Request[R], timeout_ms: int) -> None:
        """Send a request that has no answer.

        Raises:
            BrokerUnavailableError: The connection broke.
        """
        if not self.is_open:
            raise self._lost()
        general = cast("Request[Message]", request)
        self._machine.submit(general, now_ms(), timeout_ms, has_answer=False)
        self._flush()

    async def ready(self) -> None:
        """Wait until requests are taken; raises what prevented it."""
        await asyncio.shield(self._ready)

    def close(self, error: KohortError | None = None) -> None:
        """Close; what is unanswered fails."""
        if not self.is_open:
            return
        self._machine.close(error or LocalProtocolError("the connection was closed"))
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        if not self._ready.done():
            self._ready.set_exception(error or LocalProtocolError("the connection was closed"))
            self._ready.exception()  # whoever waits gets it; nobody has to
        self._dispatch()

    # -------------------------------------------------------------------- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to negotiate."""
        self._transport = cast("asyncio.Transport", transport)
        self._machine.opened(now_ms())
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # asyncio's signature
        """Return where to receive to."""
        return self._machine.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what was received."""
        try:
            self._machine.received(nbytes, now_ms())
        except RemoteProtocolError as error:
            told = told_of(self.address, error)
            if self.on_garbled is not None:
                self.on_garbled(self.address, told)
            self.close(told)
        except KohortError as error:
            self.close(error)
        else:
            self._dispatch()
            self._flush()

    def eof_received(self) -> bool:
        """Let asyncio close the socket."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is unanswered."""
        cause = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
        when = _UNGREETED if self._machine.state is ConnectionState.NEGOTIATING else ""
        self.close(
            BrokerUnavailableError(
                f"{self.address} closed the connection{when}" + (f": {cause}" if cause else "")
            )
        )

    # ------------------------------------------------------------------------------- inside

    def _lost(self) -> KohortError:
        # It may have ended since its user was given it: that is nobody's mistake.
        return BrokerUnavailableError(f"{self.address}: the connection is closed")

    def _flush(self) -> None:
        if not self.is_open:
            return
        output = self._machine.output(now_ms())
        # From Python 3.12 on `writelines` raises between asyncio's closing and `connection_lost`,
        # which then fails the requests.
        if output and self._transport is not None and not self._transport.is_closing():
            if len(output) == 1:
                self._transport.write(output[0])  # `writelines` copies even one
            else:
                self._transport.writelines(output)
            self._machine.expect()
        self._dispatch()
        self._set_timer()

    def _dispatch(self) -> None:
        for event in self._machine.events():
            if isinstance(event, BecameReady):
                if not self._ready.done():  # what came behind in the same bytes may have ended it
                    self._ready.set_result(None)
                continue
            if self.on_first_answer is not None and isinstance(event, Answered):
                self.on_first_answer()
                self.on_first_answer = None
            told = self._asked.pop(event.token, None)
            if told is not None:
                told(event)

    def _set_timer(self) -> None:
        due = self._machine.next_deadline()
        if due is None:
            return
        if self._timer is not None:
            if self._timer.when() * 1000 <= due:
                return  # it fires early enough and then sets itself anew
            self._timer.cancel()
        self._timer = self._loop.call_at(due / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        unanswered = self._machine.unanswered
        broken = self._machine.expire(now_ms())
        if broken is not None:
            if self.on_silence is not None and unanswered is not None:
                self.on_silence(unanswered)
            self.close(type(broken)(f"{self.address}: {broken}"))
            return
        self._dispatch()
        self._flush()


def _settle(future: asyncio.Future[Message], end: Ended) -> None:
    if future.done():  # whoever waited gave up
        return
    if isinstance(end, Answered):
        future.set_result(end.response)
    else:
        future.set_exception(end.error)


@dataclass(slots=True, eq=False)
class Attempt:
    """An attempt to connect.

    Attributes:
        address: `host:port`.
        phase: What has not happened yet.
    """

    address: str
    phase: str = "its name was not looked up"

    def __str__(self) -> str:
        return f"{self.address}: {self.phase}"


async def connect(
    host: str, port: int, machine: Connection, timeout_s: float, attempt: Attempt | None = None
) -> BrokerConnection:
    """Connect to the first address of `host` that answers, and make the connection ready.

    Args:
        host: The broker's host.
        port: Its port.
        machine: The connection's machine, in its first state.
        timeout_s: How long it may take.
        attempt: Is told how far it has come.

    Raises:
        BrokerUnavailableError: None does; it names each address and its cause.
        RemoteProtocolError: Who answers does not speak Kafka's protocol.
        KafkaError: The broker refused us.
    """
    address = f"{host}:{port}"
    attempt = attempt or Attempt(address)
    try:
        async with asyncio.timeout(timeout_s):
            sock = await _socket(host, port, attempt)
            loop = asyncio.get_running_loop()
            _, made = await loop.create_connection(
                lambda: BrokerConnection(machine, address), sock=sock
            )
            attempt.phase = _SILENT
            try:
                await made.ready()
            except asyncio.CancelledError:
                made.close()
                raise
            return made
    except (TimeoutError, RequestTimedOutError):
        raise BrokerUnavailableError(f"{attempt} in {timeout_s:.3g} s") from None


async def _socket(host: str, port: int, attempt: Attempt) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = literal(host, port) or await _looked_up(host, port)
    attempt.phase = "nobody accepted the connection"
    causes: list[str] = []
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            # asyncio's own text hides the reason behind "Connect call failed"
            reason = os.strerror(error.errno) if error.errno else error
            causes.append(f"{_shown(host, port, address[0])}: {reason}")
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise BrokerUnavailableError("; ".join(causes))


async def _looked_up(host: str, port: int) -> Sequence[Address]:
    try:
        asked = asyncio.get_running_loop().run_in_executor(None, look_up, host, port)
    except RuntimeError:  # the process ends, and no thread can be started any more
        return look_up(host, port)
    return await asked


def _shown(host: str, port: int, address: str | int) -> str:
    return f"{host}:{port}" if host == address else f"{host}:{port} ({address})"
