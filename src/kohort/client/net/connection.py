"""One connection to a broker, without I/O: bytes in, events and bytes out.

    CONNECTING -> NEGOTIATING -> AUTHENTICATING -> READY -> CLOSED
                                      ^              |
                                      +--------------+

NEGOTIATING asks for the broker's versions (KIP-35), AUTHENTICATING runs the exchange of an
`Authenticator`, and does so again before the SASL session ends (KIP-368); answers to earlier
requests come first then. Requests may be submitted at any time; they wait until the connection is
ready, fewer than `max_in_flight` requests are unanswered, and a throttle of the broker (KIP-219) is
over. Answers arrive in the order of the requests; anything else is a protocol error.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TypeAlias, cast

from msgspec import Struct

from kohort import __version__
from kohort.client.net.frames import Allocate, FrameReader, plain_buffer
from kohort.client.net.security.auth import Authenticator, Exchange, Work
from kohort.client.net.versions import BrokerVersions
from kohort.errors import (
    ErrorCode,
    KafkaError,
    KohortError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.wire.apis import response_class
from kohort.wire.codec import frame as frames
from kohort.wire.codec.compile import decoder
from kohort.wire.codec.limits import DEFAULT_LIMITS, Limits
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_NAME = "kohort"

# Brokers throttle for at most one quota window, 11 s by default (quota.window.num and
# quota.window.size.seconds). A longer time is a garbled answer, which must not stop all sending.
THROTTLE_MAX_MS = 60_000
_LONG_THROTTLE_MS = 5_000

_ERROR_AT = 4

# Fraction of a session after which the client authenticates again; Java uses 85 % to 95 %.
_SESSION_USED = 0.9
_LONGEST_SESSION_MS = 24 * 3_600_000  # garbled answers may have more


class ConnectionState(Enum):
    """The state of a connection."""

    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    CLOSED = "closed"


class Answered(Struct, frozen=True):
    """A request was answered.

    Attributes:
        token: The number `submit` returned.
        response: The answer.
        version: The version of both messages.
    """

    token: int
    response: Message
    version: int


class Failed(Struct, frozen=True):
    """A request will not be answered.

    Attributes:
        token: The number `submit` returned.
        error: Why.
    """

    token: int
    error: KohortError


class Sent(Struct, frozen=True):
    """A request without an answer has left the process.

    Attributes:
        token: The number `submit` returned.
    """

    token: int


class BecameReady(Struct, frozen=True):
    """The connection accepts requests."""


class Throttled(Struct, frozen=True):
    """The broker has asked for a long pause (KIP-219).

    Attributes:
        asked_ms: The pause that the broker asked for, in milliseconds.
        pause_ms: The pause that the client makes, in milliseconds.
    """

    asked_ms: int
    pause_ms: int


class WorkWanted(Struct, frozen=True):
    """Authentication waits for work that the caller has to do; pass its result to `worked`.

    Attributes:
        work: The work to do.
    """

    work: Work


ConnectionEvent: TypeAlias = Answered | Failed | Sent | BecameReady | Throttled | WorkWanted

# Token of requests that the connection sends on its own behalf.
_OWN = -1


class _Pending(Struct, frozen=True):
    token: int
    request: Request[Message]
    deadline: int
    at_most: int | None = None
    has_answer: bool = True


class _InFlight(Struct, frozen=True):
    correlation_id: int
    pending: _Pending
    version: int


class _Leaving(Struct, frozen=True):
    """A request without an answer, and the count of sent bytes at which it is sent."""

    position: int
    pending: _Pending


class Connection:
    """The state machine of one connection. Times are milliseconds of the caller's clock.

    Args:
        client_id: The client's name.
        authenticator: How to authenticate.
        host: Host name of the broker, which some mechanisms need.
        max_in_flight: How many requests may be unanswered.
        setup_timeout_ms: Timeout of each request of negotiation and authentication.
        limits: Limits for messages from the broker.
        allocate: Allocates memory for a received frame.

    Attributes:
        state: The current state.
        has_told: Whether it has written a request that the broker does not answer.
        muted_until: When it may send again after a throttle; 0 without one.
    """

    def __init__(
        self,
        *,
        client_id: str,
        authenticator: Authenticator,
        host: str = "",
        max_in_flight: int = 5,
        setup_timeout_ms: int = 10_000,
        limits: Limits = DEFAULT_LIMITS,
        allocate: Allocate = plain_buffer,
    ) -> None:
        self.state = ConnectionState.CONNECTING
        self._client_id = client_id
        self._authenticator = authenticator
        self._host = host
        self._max_in_flight = max_in_flight
        self._setup_timeout_ms = setup_timeout_ms
        self._limits = limits
        self._reader = FrameReader(limits.max_unauthenticated_frame_bytes, allocate)
        self._exchange: Exchange | None = None
        self._versions: BrokerVersions | None = None
        self._waiting: deque[_Pending] = deque()
        self._in_flight: deque[_InFlight] = deque()
        self._leaving: deque[_Leaving] = deque()
        self._written_bytes = 0
        self.has_told = False
        self._output: list[bytearray] = []
        self._events: list[ConnectionEvent] = []
        self._next_correlation_id = 0
        self._next_token = 0
        self.muted_until = 0
        self._work_due: int | None = None
        self._session_used_at: int | None = None
        self._was_ready = False

    # ------------------------------------------------------------------------------ the user

    def submit(
        self,
        request: Request[Message],
        now: int,
        timeout_ms: int,
        *,
        at_most: int | None = None,
        has_answer: bool = True,
    ) -> int:
        """Queue a request and return its token.

        Args:
            request: The request.
            now: The current time.
            timeout_ms: How long the answer may take, including time in the queue.
            at_most: The newest version to use.
            has_answer: False for a request that the broker never answers (Produce with acks 0).

        Raises:
            LocalProtocolError: The connection is closed.
        """
        if self.state is ConnectionState.CLOSED:
            raise LocalProtocolError("the connection is closed")
        self._next_token += 1
        pending = _Pending(self._next_token, request, now + timeout_ms, at_most, has_answer)
        self._waiting.append(pending)
        return pending.token

    @property
    def load(self) -> int:
        """Number of requests that are queued, unanswered, or being written."""
        return len(self._waiting) + len(self._in_flight) + len(self._leaving)

    @property
    def unanswered(self) -> str | None:
        """Name of the request whose answer is due next; None when there is none."""
        flight = next(iter(self._in_flight), None)
        return None if flight is None else type(flight.pending.request).__name__

    @property
    def was_ready(self) -> bool:
        """Whether the connection has ever been ready."""
        return self._was_ready

    def serves(self, request: type[Message]) -> bool:
        """Whether the broker serves a request; known once the connection is ready."""
        return self._versions is not None and self._versions.serves(request)

    def level(self, feature: str) -> int:
        """Return the level of a feature (KIP-584), 0 for none; known once ready."""
        return 0 if self._versions is None else self._versions.level(feature)

    # -------------------------------------------------------------------------- the transport

    def opened(self, now: int) -> None:
        """Start negotiating: the transport is connected."""
        self.state = ConnectionState.NEGOTIATING
        newest = ApiVersionsRequest.max_version
        self._ask_versions(newest, now)

    def buffer(self) -> memoryview:
        """Return the buffer that the transport receives into."""
        return self._reader.buffer()

    def is_part(self, count: int) -> bool:
        """Accept `count` received bytes if they complete no frame; return whether it did."""
        return self._reader.is_part(count)

    def received(self, count: int, now: int) -> None:
        """Process `count` bytes that were received into the buffer.

        Raises:
            RemoteProtocolError: The peer does not speak Kafka's protocol: close.
            KafkaError: The broker refused the connection: close.
        """
        for frame in self._reader.received(count):
            self._handle(frame, now)

    def output(self, now: int) -> list[bytearray]:
        """Return the frames to send now."""
        used_at = self._session_used_at
        if used_at is not None and used_at <= now and self.state is ConnectionState.READY:
            self._session_used_at = None
            self._begin_exchange(now)
        if self.muted_until <= now:
            self.muted_until = 0  # over: `next_deadline` must not return it again
        while self._may_send(now):
            self._send(self._waiting.popleft())
        out, self._output = self._output, []
        return out

    def worked(self, result: object, now: int) -> None:
        """Continue authentication with the result of the work it waited for.

        Raises:
            KafkaError: The result cannot be used: close.
        """
        if self.state is ConnectionState.AUTHENTICATING and self._work_due is not None:
            self._work_due = None
            self._authenticate(result, now)

    def left(self, kept: int) -> None:
        """Note how many bytes of the frames that `output` returned are not sent yet.

        A request without an answer counts as sent once the operating system has it: data in the
        transport's buffer is lost when the process ends or the connection breaks.
        """
        while self._leaving and self._leaving[0].position <= self._written_bytes - kept:
            self._events.append(Sent(self._leaving.popleft().pending.token))

    def expect(self) -> None:
        """Prepare to read the answer to the last request; call it while the broker works.

        The first message of each type compiles a decoder, which takes about as long as the broker
        does.
        """
        if self._in_flight:
            last = self._in_flight[-1]
            decoder(response_class(last.pending.request.api_key), last.version)

    def events(self) -> list[ConnectionEvent]:
        """Return the events since the last call."""
        out, self._events = self._events, []
        return out

    def next_deadline(self) -> int | None:
        """Return the latest time to call `expire` and `output`."""
        times = [pending.deadline for pending in self._waiting]
        times += [flight.pending.deadline for flight in self._in_flight]
        times += [leaving.pending.deadline for leaving in self._leaving]
        if self._waiting and self.muted_until:
            times.append(self.muted_until)
        times += [due for due in (self._work_due, self._session_used_at) if due is not None]
        return min(times, default=None)

    def expire(self, now: int) -> KohortError | None:
        """Give up requests that waited too long; return why the connection must close, if it must.

        Answers come in order, so after a missing one no other answer can arrive.
        """
        for flight in self._in_flight:
            if flight.pending.deadline <= now:
                return RequestTimedOutError(
                    f"no answer to {type(flight.pending.request).__name__} in time"
                )
        for leaving in self._leaving:  # a part may have been sent: it cannot be withdrawn
            if leaving.pending.deadline <= now:
                return RequestTimedOutError(
                    f"{type(leaving.pending.request).__name__} could not be sent in time"
                )
        if self._work_due is not None and self._work_due <= now:
            return RequestTimedOutError("authentication got no token, or no hash, in time")
        late = [pending for pending in self._waiting if pending.deadline <= now]
        for pending in late:
            self._waiting.remove(pending)
            what = f"{type(pending.request).__name__} could not be sent in time"
            self._events.append(Failed(pending.token, RequestTimedOutError(what)))
        return None

    def close(self, error: KohortError) -> None:
        """End the connection; every request fails with `error`."""
        self.state = ConnectionState.CLOSED
        tokens = [flight.pending.token for flight in self._in_flight]
        tokens += [leaving.pending.token for leaving in self._leaving]
        tokens += [pending.token for pending in self._waiting]
        self._in_flight.clear()
        self._leaving.clear()
        self._waiting.clear()
        self._events += [Failed(token, error) for token in tokens if token != _OWN]

    # ----------------------------------------------------------------------------- inside

    def _may_send(self, now: int) -> bool:
        return (
            self.state is ConnectionState.READY
            and bool(self._waiting)
            and len(self._in_flight) < self._max_in_flight
            and self.muted_until <= now
        )

    def _send(self, pending: _Pending) -> None:
        assert self._versions is not None
        try:
            version = self._versions.choose(type(pending.request), pending.at_most)
            self._write(pending, version)
        except (KafkaError, LocalProtocolError) as error:
            self._events.append(Failed(pending.token, error))

    def _write(self, pending: _Pending, version: int) -> None:
        number = self._next_correlation_id
        frame = frames.encode_request(pending.request, version, number, self._client_id)
        self._next_correlation_id = (number + 1) & 0x7FFFFFFF
        self._output.append(frame)
        self._written_bytes += len(frame)
        if pending.has_answer:
            self._in_flight.append(_InFlight(number, pending, version))
        else:
            self._leaving.append(_Leaving(self._written_bytes, pending))
            self.has_told = True

    def _handle(self, frame: memoryview, now: int) -> None:
        if not self._in_flight:
            raise RemoteProtocolError("received a frame without a pending request")
        flight = self._in_flight[0]
        number = frames.correlation_id_of(frame)
        if number != flight.correlation_id:
            raise RemoteProtocolError(f"correlation id {number}, expected {flight.correlation_id}")
        if self.state is ConnectionState.NEGOTIATING:
            self._negotiated(frame, flight.version, now)
            return
        api_key = flight.pending.request.api_key
        response = frames.decode_response(response_class(api_key), flight.version, frame)
        self._in_flight.popleft()
        self._throttle(response, now)
        if flight.pending.token == _OWN:
            self._authenticate(response, now)
        else:
            self._events.append(Answered(flight.pending.token, response, flight.version))

    def _throttle(self, response: Message, now: int) -> None:
        pause = getattr(response, "throttle_time_ms", 0)
        if pause <= 0:
            return
        kept = min(pause, THROTTLE_MAX_MS)
        self.muted_until = max(self.muted_until, now + kept)
        if pause >= _LONG_THROTTLE_MS:
            self._events.append(Throttled(pause, kept))

    def _ask_versions(self, version: int, now: int) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
        general = cast("Request[Message]", request)
        self._write(_Pending(_OWN, general, now + self._setup_timeout_ms), version)

    def _negotiated(self, frame: memoryview, version: int, now: int) -> None:
        # A broker that does not know our version answers in version 0 (KIP-511).
        refused = int.from_bytes(frame[_ERROR_AT : _ERROR_AT + 2], "big", signed=True)
        if refused == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            answer = frames.decode_response(ApiVersionsResponse, 0, frame)
            self._in_flight.popleft()
            self._ask_versions(_older(answer, version), now)
            return
        answer = frames.decode_response(ApiVersionsResponse, version, frame)
        self._in_flight.popleft()
        if answer.error_code:
            raise KafkaError(answer.error_code, "the broker refused ApiVersions")
        self._versions = BrokerVersions(answer)
        if too_old := self._versions.too_old():
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, too_old)
        self._begin_exchange(now)

    def _begin_exchange(self, now: int) -> None:
        self.state = ConnectionState.AUTHENTICATING
        self._exchange = self._authenticator.exchange(self._host)
        self._authenticate(None, now)

    def _authenticate(self, answer: object, now: int) -> None:
        assert self._exchange is not None
        assert self._versions is not None
        try:
            step = next(self._exchange) if answer is None else self._exchange.send(answer)
        except StopIteration as end:
            self._become_ready(end.value or 0, now)
            return
        if isinstance(step, Work):
            self._work_due = now + self._setup_timeout_ms
            self._events.append(WorkWanted(step))
            return
        version = self._versions.choose(type(step))
        # When a session is renewed, answers to earlier requests come first.
        earlier = [flight.pending.deadline for flight in self._in_flight]
        deadline = max([now, *earlier]) + self._setup_timeout_ms
        self._write(_Pending(_OWN, step, deadline), version)

    def _become_ready(self, session_ms: int, now: int) -> None:
        self.state = ConnectionState.READY
        self._reader.limit = self._limits.max_frame_bytes
        if session_ms > 0:
            used_ms = min(int(session_ms * _SESSION_USED), _LONGEST_SESSION_MS)
            self._session_used_at = now + used_ms
        if not self._was_ready:
            self._was_ready = True
            self._events.append(BecameReady())


def _older(answer: ApiVersionsResponse, version: int) -> int:
    """Return the version of ApiVersions to try after `version` was refused."""
    for api in answer.api_keys:
        if api.api_key == ApiVersionsRequest.api_key:
            return max(0, min(api.max_version, version - 1))
    return 0
