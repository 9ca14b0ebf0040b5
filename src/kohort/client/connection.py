"""One connection to a broker, without I/O: bytes in, events and bytes out.

    CONNECTING -> NEGOTIATING -> AUTHENTICATING -> READY -> CLOSED

NEGOTIATING asks for the broker's versions (KIP-35), AUTHENTICATING runs the exchange of an
`Authenticator`. Requests may be given at any time; they wait until the connection is ready, until
fewer than `max_in_flight` are unanswered, and until a throttle of the broker (KIP-219) is over.
Answers come in the order of the requests; anything else breaks the protocol.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TypeAlias, cast

from kohort.client.auth import Authenticator, Exchange
from kohort.client.frames import Allocate, FrameReader, plain_buffer
from kohort.client.versions import BrokerVersions
from kohort.errors import (
    ErrorCode,
    KafkaError,
    KohortError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.values import dataclass
from kohort.wire import frame as frames
from kohort.wire.apis import response_class
from kohort.wire.compile import decoder
from kohort.wire.limits import DEFAULT_LIMITS, Limits
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schema import Message, Request

SOFTWARE_NAME = "kohort"
SOFTWARE_VERSION = "0.1.0"

_ERROR_AT = 4


class ConnectionState(Enum):
    """Where a connection stands."""

    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Answered:
    """A request was answered.

    Attributes:
        token: The number `submit` returned.
        response: The answer.
        version: The version both were written in.
    """

    token: int
    response: Message
    version: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A request will not be answered.

    Attributes:
        token: The number `submit` returned.
        error: Why.
    """

    token: int
    error: KohortError


@dataclass(frozen=True, slots=True)
class BecameReady:
    """The connection takes requests."""


ConnectionEvent: TypeAlias = Answered | Failed | BecameReady

# Token of the requests that the connection makes for itself.
_OWN = -1


@dataclass(frozen=True, slots=True)
class _Pending:
    token: int
    request: Request[Message]
    deadline: int
    at_most: int | None = None
    has_answer: bool = True


@dataclass(frozen=True, slots=True)
class _InFlight:
    correlation_id: int
    pending: _Pending
    version: int


class Connection:
    """The machine of one connection. Times are milliseconds of the caller's clock.

    Args:
        client_id: What the client calls itself.
        authenticator: How to authenticate.
        max_in_flight: How many requests may be unanswered.
        setup_timeout_ms: How long negotiating and authenticating may take, each request.
        limits: Bounds on what the broker may send.
        allocate: Makes the memory of a received frame.
    """

    def __init__(
        self,
        *,
        client_id: str,
        authenticator: Authenticator,
        max_in_flight: int = 5,
        setup_timeout_ms: int = 10_000,
        limits: Limits = DEFAULT_LIMITS,
        allocate: Allocate = plain_buffer,
    ) -> None:
        self.state = ConnectionState.CONNECTING
        self._client_id = client_id
        self._authenticator = authenticator
        self._max_in_flight = max_in_flight
        self._setup_timeout_ms = setup_timeout_ms
        self._limits = limits
        self._reader = FrameReader(limits.max_unauthenticated_frame_bytes, allocate)
        self._exchange: Exchange | None = None
        self._versions: BrokerVersions | None = None
        self._waiting: deque[_Pending] = deque()
        self._in_flight: deque[_InFlight] = deque()
        self._output: list[bytearray] = []
        self._events: list[ConnectionEvent] = []
        self._next_correlation_id = 0
        self._next_token = 0
        self._muted_until = 0

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
            now: The time.
            timeout_ms: How long its answer may take, waiting included.
            at_most: Newest version to write it in.
            has_answer: False for what the broker never answers (Produce with acks 0).

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
        """How many requests are waiting or unanswered."""
        return len(self._waiting) + len(self._in_flight)

    @property
    def unanswered(self) -> str | None:
        """Name of the request whose answer is the next to come, None when there is none."""
        flight = next(iter(self._in_flight), None)
        return None if flight is None else type(flight.pending.request).__name__

    def serves(self, request: type[Message]) -> bool:
        """Whether the broker serves a request; known once the connection is ready."""
        return self._versions is not None and self._versions.serves(request)

    # -------------------------------------------------------------------------- the transport

    def opened(self, now: int) -> None:
        """Begin: the transport is connected."""
        self.state = ConnectionState.NEGOTIATING
        newest = ApiVersionsRequest.max_version
        self._ask_versions(newest, now)

    def buffer(self) -> memoryview:
        """Return where the transport shall receive to."""
        return self._reader.buffer()

    def received(self, count: int, now: int) -> None:
        """Take note that `count` bytes were received into the buffer.

        Raises:
            RemoteProtocolError: The peer does not speak Kafka's protocol: close.
            KafkaError: The broker refused the connection: close.
        """
        for frame in self._reader.received(count):
            self._handle(frame, now)

    def output(self, now: int) -> list[bytearray]:
        """Return the frames to send now."""
        while self._may_send(now):
            self._send(self._waiting.popleft())
        out, self._output = self._output, []
        return out

    def expect(self) -> None:
        """Be ready to read the answer to what was sent last: call it while the broker works.

        The first message of each kind is compiled, which takes as long as a broker does.
        """
        if self._in_flight:
            last = self._in_flight[-1]
            decoder(response_class(last.pending.request.api_key), last.version)

    def events(self) -> list[ConnectionEvent]:
        """Return what happened since the last call."""
        out, self._events = self._events, []
        return out

    def next_deadline(self) -> int | None:
        """Return when `expire` and `output` shall be called at the latest."""
        times = [pending.deadline for pending in self._waiting]
        times += [flight.pending.deadline for flight in self._in_flight]
        if self._waiting and self._muted_until:
            times.append(self._muted_until)
        return min(times, default=None)

    def expire(self, now: int) -> KohortError | None:
        """Give up what has waited too long; return why the connection must close, if it must.

        Answers come in order, so after one that did not come no other can be expected.
        """
        for flight in self._in_flight:
            if flight.pending.deadline <= now:
                return RequestTimedOutError(
                    f"no answer to {type(flight.pending.request).__name__} in time"
                )
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
        tokens += [pending.token for pending in self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        self._events += [Failed(token, error) for token in tokens if token != _OWN]

    # ----------------------------------------------------------------------------- inside

    def _may_send(self, now: int) -> bool:
        return (
            self.state is ConnectionState.READY
            and bool(self._waiting)
            and len(self._in_flight) < self._max_in_flight
            and self._muted_until <= now
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
        if pending.has_answer:
            self._in_flight.append(_InFlight(number, pending, version))

    def _handle(self, frame: memoryview, now: int) -> None:
        if not self._in_flight:
            raise RemoteProtocolError("a frame came although nothing was asked")
        flight = self._in_flight[0]
        number = frames.correlation_id_of(frame)
        if number != flight.correlation_id:
            raise RemoteProtocolError(
                f"the answer has correlation id {number}, expected {flight.correlation_id}"
            )
        if self.state is ConnectionState.NEGOTIATING:
            self._negotiated(frame, flight.version, now)
            return
        api_key = flight.pending.request.api_key
        response = frames.decode_response(response_class(api_key), flight.version, frame)
        self._in_flight.popleft()
        self._throttle(response, now)
        if self.state is ConnectionState.AUTHENTICATING:
            self._authenticate(response, now)
        else:
            self._events.append(Answered(flight.pending.token, response, flight.version))

    def _throttle(self, response: Message, now: int) -> None:
        pause = getattr(response, "throttle_time_ms", 0)
        if pause > 0:
            self._muted_until = max(self._muted_until, now + pause)

    def _ask_versions(self, version: int, now: int) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        general = cast("Request[Message]", request)
        self._write(_Pending(_OWN, general, now + self._setup_timeout_ms), version)

    def _negotiated(self, frame: memoryview, version: int, now: int) -> None:
        # A broker that does not know our version says so in version 0, whatever we asked (KIP-511).
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
        self.state = ConnectionState.AUTHENTICATING
        self._exchange = self._authenticator.exchange()
        self._authenticate(None, now)

    def _authenticate(self, response: Message | None, now: int) -> None:
        assert self._exchange is not None
        assert self._versions is not None
        try:
            request = next(self._exchange) if response is None else self._exchange.send(response)
        except StopIteration:
            self._become_ready()
            return
        version = self._versions.choose(type(request))
        self._write(_Pending(_OWN, request, now + self._setup_timeout_ms), version)

    def _become_ready(self) -> None:
        self.state = ConnectionState.READY
        self._reader.limit = self._limits.max_frame_bytes
        self._events.append(BecameReady())


def _older(answer: ApiVersionsResponse, version: int) -> int:
    """Return the version of ApiVersions to try after `version` was refused."""
    for api in answer.api_keys:
        if api.api_key == ApiVersionsRequest.api_key:
            return max(0, min(api.max_version, version - 1))
    return 0
