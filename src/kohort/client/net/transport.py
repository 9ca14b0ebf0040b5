"""A connection on asyncio: the state machine of `connection` with a socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import TypeAlias, TypeVar, cast

from kohort.client.measures import Traffic
from kohort.client.net.backoff import Deadline, may_pass
from kohort.client.net.connection import (
    Answered,
    BecameReady,
    Connection,
    ConnectionState,
    Failed,
    Sent,
    Throttled,
    WorkWanted,
)
from kohort.client.net.frames import log_throttle, told_of
from kohort.client.net.security.auth import Work
from kohort.client.net.security.tls import CutUngreetedError
from kohort.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    KohortError,
    LocalProtocolError,
    RemoteProtocolError,
    TlsError,
)
from kohort.wire.codec.schema import Message, Request

log = logging.getLogger("kohort.client")

R = TypeVar("R", bound=Message)
T = TypeVar("T")

Ended: TypeAlias = Answered | Failed

# Token of a request that was never passed to the state machine.
_NO_TOKEN = 0

_UNANSWERED = " before it answered a request (a listener that requires SASL does this)"
_UNGREETED = " before it answered the first request"


def now_ms() -> int:
    """Return the time of the running loop in milliseconds."""
    return int(asyncio.get_running_loop().time() * 1000)


def paused_until(connection: BrokerConnection | None) -> int:
    """Return when a connection's pause ends, in ms of `now_ms`; 0 without a connection."""
    return 0 if connection is None else connection.muted_until


class BrokerConnection(asyncio.BufferedProtocol):
    """One socket, owned by one loop.

    Args:
        machine: The connection's state machine, in its initial state.
        address: `host:port`, for messages.

    Attributes:
        on_silence: Called with the name of a request that was not answered in time.
        on_garbled: Called with the address and the error when received bytes are not an answer.
        on_work: Called with what authentication waits for other than the broker, then with None.
        on_first_answer: Called when a request of the user is answered for the first time.
        used_at_s: When bytes were last sent or received, by the loop's clock.
    """

    def __init__(self, machine: Connection, address: str) -> None:
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._open: asyncio.Future[None] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._is_finishing = self._was_answered = False
        self._asked: dict[int, Callable[[Ended], None]] = {}
        self._told: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._working: asyncio.Task[None] | None = None
        self.on_silence: Callable[[str], None] | None = None
        self.on_garbled: Callable[[str, RemoteProtocolError], None] | None = None
        self.on_first_answer: Callable[[], None] | None = None
        self.on_work: Callable[[str | None], None] | None = None
        self._traffic: Traffic | None = None
        self.used_at_s = self._loop.time()

    # ------------------------------------------------------------------------------ the user

    @property
    def is_open(self) -> bool:
        """Whether the connection accepts requests."""
        return self._machine.state is not ConnectionState.CLOSED

    @property
    def muted_until(self) -> int:
        """When it sends again after a pause that the broker asked for; 0 without one."""
        return self._machine.muted_until

    @property
    def load(self) -> int:
        """Number of requests that are unanswered or not sent yet."""
        return self._machine.load

    @property
    def unanswered(self) -> str | None:
        """Name of the request whose answer is due next; None when there is none."""
        return self._machine.unanswered

    def watch(self, traffic: Traffic) -> None:
        """Count the traffic of this connection from now on."""
        self._traffic = traffic
        traffic.opened(self._loop.time() * 1000)

    def serves(self, request: type[Message]) -> bool:
        """Whether the broker serves a request (KIP-35)."""
        return self._machine.serves(request)

    def level(self, feature: str) -> int:
        """Return the level of a feature that the cluster has agreed on (KIP-584), 0 for none."""
        return self._machine.level(feature)

    async def request(
        self,
        request: Request[R],
        timeout_ms: int,
        *,
        at_most: int | None = None,
        call: Deadline | None = None,
    ) -> R:
        """Send a request and return its answer.

        Args:
            request: The request.
            timeout_ms: How long to wait for the answer.
            at_most: The newest version to use.
            call: The call it belongs to, which records a lost answer.

        Raises:
            KafkaError: There was no answer in time, the connection broke, or the broker does not
                serve the request.
            RemoteProtocolError: The answer violates Kafka's protocol.
        """
        future: asyncio.Future[Message] = self._loop.create_future()
        self.ask(request, timeout_ms, partial(_settle, future), at_most=at_most)
        try:
            return cast("R", await future)
        except KohortError as error:
            if call is not None:
                call.lost = error
            raise

    def ask(
        self,
        request: Request[R],
        timeout_ms: int,
        told: Callable[[Ended], None],
        *,
        at_most: int | None = None,
    ) -> None:
        """Send a request and call `told` with its answer, or with the error.

        It is called while the answer is received, or at once, and must not raise.
        """
        if not self.is_open:
            told(Failed(_NO_TOKEN, self._lost()))
            return
        general = cast("Request[Message]", request)
        token = self._machine.submit(general, now_ms(), timeout_ms, at_most=at_most)
        self._asked[token] = told
        self._flush()

    async def tell(
        self, request: Request[R], timeout_ms: int, *, at_most: int | None = None
    ) -> None:
        """Send a request that has no answer; return once the operating system has it.

        Args:
            request: The request.
            timeout_ms: How long sending may take.
            at_most: The newest version to use.

        Raises:
            KafkaError: The request could not be sent in time, the connection broke first, or the
                broker does not serve it.
        """
        if not self.is_open:
            raise self._lost()
        general = cast("Request[Message]", request)
        token = self._machine.submit(
            general, now_ms(), timeout_ms, at_most=at_most, has_answer=False
        )
        told = self._told[token] = self._loop.create_future()
        self._flush()
        await told

    async def ready(self) -> None:
        """Wait until requests are accepted; raise the error that prevented it."""
        await asyncio.shield(self._ready)

    async def greeted(self) -> None:
        """Wait until the transport can be written to; raise the error that prevented it."""
        await asyncio.wait((self._ready, self._open), return_when=asyncio.FIRST_COMPLETED)
        if self._ready.done():
            await self._ready

    async def finish(self, patience_s: float) -> None:
        """Close once the broker has read the requests that it does not answer; see `close_all`."""
        transport = self._transport
        try:
            if self.is_open and self._machine.has_told and transport is not None:
                self._is_finishing = True
                with suppress(OSError):  # TimeoutError is one
                    transport.write_eof()
                    async with asyncio.timeout(patience_s):
                        await self._gone.wait()
        finally:
            self.close()

    def close_if_idle(self, max_idle_ms: int) -> None:
        """Close a connection that was idle for this long: a middlebox may have cut it."""
        if not self.load and (self._loop.time() - self.used_at_s) * 1000 > max_idle_ms:
            self.close()

    def close(self, error: KohortError | None = None) -> None:
        """Close; unanswered requests fail."""
        if not self.is_open:
            return
        if error is not None:
            error = refused(error, self.address, in_session=self._machine.was_ready)
        self._machine.close(error or LocalProtocolError("the connection was closed"))
        if self._timer is not None:
            self._timer.cancel()
        if self._working is not None:
            self._working.cancel()
        if self._transport is not None:
            self._transport.abort()
        if self._traffic is not None:
            self._traffic.closed(self._loop.time() * 1000)
        if not self._ready.done():
            self._ready.set_exception(error or LocalProtocolError("the connection was closed"))
            self._ready.exception()  # marks the exception as retrieved: there may be no waiter
        self._dispatch()

    # -------------------------------------------------------------------- called by asyncio

    def transport_is(self, transport: asyncio.Transport) -> None:
        """Set a transport to close that cannot be written to yet."""
        self._transport = transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start negotiating."""
        self._transport = cast("asyncio.Transport", transport)
        self._open.set_result(None)
        # `resume_writing` is called when the buffer is empty: requests without an answer are sent
        # then.
        self._transport.set_write_buffer_limits(0)
        self._machine.opened(now_ms())
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # asyncio's signature
        """Return the buffer to receive into."""
        return self._machine.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle received bytes."""
        self.used_at_s = self._loop.time()
        if self._traffic is not None:
            self._traffic.received += nbytes
        if not self._machine.is_part(nbytes):  # a large answer arrives in hundreds of parts
            self._handle(self._machine.received, nbytes)

    def _handle(self, give: Callable[[T, int], None], what: T) -> None:
        """Pass something and the current time to the state machine."""
        try:
            give(what, now_ms())
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

    def resume_writing(self) -> None:
        """Note that all written bytes are sent."""
        self._note_left()
        self._dispatch()

    def eof_received(self) -> bool:
        """Let asyncio close the socket."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail unanswered requests."""
        self._gone.set()
        cause = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
        is_ungreeted = self._machine.state is ConnectionState.NEGOTIATING
        when = _UNGREETED if is_ungreeted else ""
        if self._machine.state is ConnectionState.READY and not self._was_answered:
            when = _UNANSWERED
        kind = CutUngreetedError if is_ungreeted else BrokerUnavailableError
        self.close(
            kind(f"{self.address} closed the connection{when}" + (f": {cause}" if cause else ""))
        )

    # ------------------------------------------------------------------------------- inside

    def _lost(self) -> KohortError:
        # It may have closed after the caller obtained it: that is not a mistake of the caller.
        return BrokerUnavailableError(f"{self.address}: the connection is closed")

    def _flush(self) -> None:
        if not self.is_open or self._is_finishing:
            return
        output = self._machine.output(now_ms())
        # Since Python 3.12, `writelines` raises between asyncio's closing and `connection_lost`,
        # which then fails the requests.
        if output and self._transport is not None and not self._transport.is_closing():
            self.used_at_s = self._loop.time()
            if len(output) == 1:
                self._transport.write(output[0])  # `writelines` copies even one
            else:
                self._transport.writelines(output)
            if self._traffic is not None:
                self._traffic.sent(sum(len(each) for each in output), now_ms())
            self._machine.expect()
        self._note_left()
        self._dispatch()
        self._set_timer()

    def _note_left(self) -> None:
        # While asyncio closes, its buffer no longer holds unwritten bytes.
        if self._transport is not None and not self._transport.is_closing():
            self._machine.left(self._transport.get_write_buffer_size())

    def _dispatch(self) -> None:
        for event in self._machine.events():
            if isinstance(event, BecameReady):
                if not self._ready.done():  # later bytes of the same chunk may have ended it
                    self._ready.set_result(None)
                continue
            if isinstance(event, Throttled):
                log_throttle(self.address, event.asked_ms, event.pause_ms)
                continue
            if not isinstance(event, Answered):
                if isinstance(event, WorkWanted):
                    self._working = self._loop.create_task(self._work(event.work))
                    continue
                self._end_told(event)
            else:
                self._was_answered = True
                if self._traffic is not None:
                    self._traffic.answered(now_ms())
            if isinstance(event, Sent):
                continue
            if self.on_first_answer is not None and isinstance(event, Answered):
                self.on_first_answer()
                self.on_first_answer = None
            told = self._asked.pop(event.token, None)
            if told is not None:
                told(event)

    async def _work(self, work: Work) -> None:
        """Do the work that authentication waits for outside the loop, then continue."""
        if self.on_work is not None:
            self.on_work(work.what)
        try:
            result = await self._done(work)
        except Exception as error:  # noqa: BLE001  # from the provider's awaited call
            self.close(work_failed(error))
        else:
            if self.on_work is not None:
                self.on_work(None)
            self._handle(self._machine.worked, result)

    async def _done(self, work: Work) -> object:
        if work.on_loop is not None:
            return await work.on_loop()
        try:
            result = await self._loop.run_in_executor(None, work.run)
        except RuntimeError:  # the process is exiting, and threads can no longer be started
            result = work.run()
        return await result if isawaitable(result) else result

    def _end_told(self, event: Sent | Failed) -> None:
        future = self._told.pop(event.token, None)
        if future is None or future.done():
            return
        if isinstance(event, Sent):
            future.set_result(None)
        else:
            future.set_exception(event.error)

    def _set_timer(self) -> None:
        due = self._machine.next_deadline()
        if due is None:
            return
        if self._timer is not None:
            if self._timer.when() * 1000 <= due:
                return  # it fires early enough and then sets itself again
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


async def close_all(connections: Iterable[BrokerConnection], patience_s: float) -> None:
    """Close connections once the brokers have read the requests that they do not answer.

    After the process ends, the operating system still sends buffered data, unless unread data
    arrives: then it resets the connection and drops the buffer. So each connection shuts down its
    writing side, and reads until the broker closes its side.

    Args:
        connections: The connections; all are closed in any case.
        patience_s: How long to wait for the brokers, in seconds.
    """
    kept = list(connections)
    try:
        if patience_s > 0:
            await asyncio.gather(*(each.finish(patience_s) for each in kept))
    finally:
        for each in kept:
            each.close()


def _settle(future: asyncio.Future[Message], end: Ended) -> None:
    if future.done():  # the waiter gave up
        return
    if isinstance(end, Answered):
        future.set_result(end.response)
    else:
        future.set_exception(end.error)


def refused(error: KohortError, address: str, *, in_session: bool) -> KohortError:
    """Return the error of a request on a connection that was closed.

    Args:
        error: Why it was closed.
        address: Address of the broker.
        in_session: Whether the client was accepted before. Then pending requests may be sent again
            over a new connection; opening it shows whether the client is refused for good.
    """
    if in_session and not may_pass(error):
        made = BrokerUnavailableError(f"{address}: the session could not continue: {error}")
        log.warning("%s; connecting again", made.message)
        made.__cause__ = error
        return made
    return _addressed(error, address)


def _addressed(error: KohortError, address: str) -> KohortError:
    """Return an authentication error with the address of the broker that refused the client."""
    if not isinstance(error, AuthenticationError) or isinstance(error, TlsError):
        return error
    made = type(error)(error.code, f"{address}: {error.message}")
    made.__cause__ = error.__cause__
    return made


def work_failed(error: Exception) -> KohortError:
    """Return the error for an exception raised by work that authentication waited for."""
    from kohort.client.net.security.oauth import failed_provider

    return failed_provider(error)
