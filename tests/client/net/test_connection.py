from __future__ import annotations

import struct
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.net.connection import (
    THROTTLE_MAX_MS,
    Answered,
    BecameReady,
    Connection,
    ConnectionEvent,
    ConnectionState,
    Failed,
    Sent,
    Throttled,
)
from kohort.client.net.security.auth import Authenticator, Exchange, NoAuthentication
from kohort.errors import (
    ErrorCode,
    KafkaError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimedOutError,
)
from kohort.wire.codec import frame as frames
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kohort.wire.messages.membership import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

SERVED = ApiVersionsResponse(
    error_code=0,
    api_keys=tuple(
        ApiVersion(api_key=key, min_version=0, max_version=newest)
        for key, newest in [(12, 4), (17, 1), (18, 4), (36, 2)]
    ),
)
HEARTBEAT = cast("Request[Message]", HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))


class Broker:
    """The other end of a connection's state machine: reads its requests and sends it answers."""

    def __init__(self, machine: Connection) -> None:
        self.machine = machine

    def next_requests(self, now: int = 0) -> list[frames.ReceivedRequest]:
        return [frames.decode_request(memoryview(out)[4:]) for out in self.machine.output(now)]

    def next_request(self) -> frames.ReceivedRequest:
        (request,) = self.next_requests()
        return request

    def send(self, data: bytes | bytearray, now: int = 0) -> None:
        at = 0
        while at < len(data):
            room = self.machine.buffer()
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            at += count
            self.machine.received(count, now)

    def answer(self, to: frames.ReceivedRequest, response: Message, now: int = 0) -> None:
        self.send(frames.encode_response(response, to.version, to.correlation_id), now)


def opened(
    authenticator: Authenticator | None = None, max_in_flight: int = 5
) -> tuple[Connection, Broker]:
    machine = Connection(
        client_id="test",
        authenticator=authenticator or NoAuthentication(),
        max_in_flight=max_in_flight,
    )
    machine.opened(0)
    return machine, Broker(machine)


def ready(max_in_flight: int = 5) -> tuple[Connection, Broker]:
    machine, broker = opened(max_in_flight=max_in_flight)
    broker.answer(broker.next_request(), SERVED)
    assert machine.events() == [BecameReady()]
    return machine, broker


def test_versions_are_asked_first_and_requests_wait_for_them() -> None:
    machine, broker = opened()
    machine.submit(HEARTBEAT, 0, 1000)
    asked = broker.next_request()
    assert isinstance(asked.message, ApiVersionsRequest)
    assert asked.message.client_software_name == "kohort"
    broker.answer(asked, SERVED)
    assert isinstance(broker.next_request().message, HeartbeatRequest)
    assert machine.state is ConnectionState.READY


def test_the_highest_version_of_both_sides_is_used() -> None:
    machine, broker = ready()
    machine.submit(HEARTBEAT, 0, 1000)
    machine.submit(HEARTBEAT, 0, 1000, at_most=2)
    assert [request.version for request in broker.next_requests()] == [4, 2]


def test_an_old_broker_refuses_our_version_in_version_0_and_is_asked_again() -> None:
    machine, broker = opened()
    first = broker.next_request()
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=(ApiVersion(api_key=18, min_version=0, max_version=2),),
    )
    broker.send(frames.encode_response(refusal, 0, first.correlation_id))
    second = broker.next_request()
    assert second.version == 2
    broker.answer(second, SERVED)
    assert machine.events() == [BecameReady()]


def test_what_the_broker_does_not_serve_fails_alone() -> None:
    machine, broker = ready()
    request = SaslHandshakeRequest(mechanism="PLAIN")
    unserved = cast("Request[Message]", SaslAuthenticateRequest(auth_bytes=b""))
    good = machine.submit(cast("Request[Message]", request), 0, 1000)
    bad = machine.submit(unserved, 0, 1000, at_most=-1)
    asked = broker.next_request()
    (event,) = machine.events()
    assert isinstance(event, Failed)
    assert event.token == bad
    assert isinstance(event.error, KafkaError)
    assert event.error.code == ErrorCode.UNSUPPORTED_VERSION
    response = SaslHandshakeResponse(error_code=0, mechanisms=())
    broker.answer(asked, response)
    assert machine.events() == [Answered(good, response, 1)]


def test_no_more_than_the_limit_are_in_flight_and_answers_keep_the_order() -> None:
    machine, broker = ready(max_in_flight=2)
    tokens = [machine.submit(HEARTBEAT, 0, 1000) for _ in range(3)]
    first, second = broker.next_requests()
    assert broker.next_requests() == []
    broker.answer(first, HeartbeatResponse(error_code=0))
    (third,) = broker.next_requests()
    broker.answer(second, HeartbeatResponse(error_code=0))
    broker.answer(third, HeartbeatResponse(error_code=0))
    assert [event.token for event in answered(machine.events())] == tokens


def answered(events: list[ConnectionEvent]) -> list[Answered]:
    return [event for event in events if isinstance(event, Answered)]


def test_a_throttled_client_is_silent_until_the_time_is_over() -> None:
    machine, broker = ready()
    machine.submit(HEARTBEAT, 0, 1000)
    broker.answer(
        broker.next_request(), HeartbeatResponse(error_code=0, throttle_time_ms=300), now=100
    )
    machine.submit(HEARTBEAT, 100, 1000)
    assert broker.next_requests(now=399) == []
    assert machine.next_deadline() == 400
    assert len(broker.next_requests(now=400)) == 1


def test_a_throttle_that_is_over_is_no_time_to_wake_up_at() -> None:
    """Otherwise the transport would wake up repeatedly while requests wait for answers."""
    machine, broker = ready(max_in_flight=1)
    machine.submit(HEARTBEAT, 0, 1000)
    throttled = HeartbeatResponse(error_code=0, throttle_time_ms=300)
    broker.answer(broker.next_request(), throttled, now=100)
    for _ in range(2):
        machine.submit(HEARTBEAT, 500, 1000)
    assert len(broker.next_requests(now=500)) == 1
    assert machine.next_deadline() == 1500


def test_a_pause_that_no_quota_asks_for_is_cut_and_told() -> None:
    machine, broker = ready()
    machine.submit(HEARTBEAT, 0, 1000)
    broker.answer(
        broker.next_request(), HeartbeatResponse(error_code=0, throttle_time_ms=2**30), now=100
    )
    assert Throttled(2**30, THROTTLE_MAX_MS) in machine.events()
    machine.submit(HEARTBEAT, 100, 2 * THROTTLE_MAX_MS)
    assert broker.next_requests(now=99 + THROTTLE_MAX_MS) == []
    assert len(broker.next_requests(now=100 + THROTTLE_MAX_MS)) == 1


def test_an_unanswered_request_ends_the_connection_at_its_deadline() -> None:
    machine, broker = ready()
    token = machine.submit(HEARTBEAT, 0, 1000)
    broker.next_request()
    assert machine.next_deadline() == 1000
    assert machine.expire(999) is None
    error = machine.expire(1000)
    assert isinstance(error, RequestTimedOutError)
    machine.close(error)
    assert machine.events() == [Failed(token, error)]
    with pytest.raises(LocalProtocolError):
        machine.submit(HEARTBEAT, 1000, 1000)


def test_a_request_that_could_not_be_sent_in_time_fails_alone() -> None:
    machine, broker = ready(max_in_flight=1)
    machine.submit(HEARTBEAT, 0, 5000)
    late = machine.submit(HEARTBEAT, 0, 1000)
    broker.next_request()
    assert machine.expire(1000) is None
    (event,) = machine.events()
    assert isinstance(event, Failed)
    assert event.token == late


def test_a_wrong_correlation_id_breaks_the_protocol() -> None:
    machine, broker = ready()
    machine.submit(HEARTBEAT, 0, 1000)
    asked = broker.next_request()
    with pytest.raises(RemoteProtocolError, match="correlation id"):
        broker.send(
            frames.encode_response(
                HeartbeatResponse(error_code=0), asked.version, asked.correlation_id + 1
            )
        )


def test_an_answer_to_nothing_breaks_the_protocol() -> None:
    _, broker = ready()
    with pytest.raises(RemoteProtocolError, match="without a pending request"):
        broker.send(struct.pack(">ii", 4, 0))


def test_before_it_is_ready_a_peer_may_send_small_frames_only() -> None:
    _, broker = opened()
    broker.next_request()
    with pytest.raises(RemoteProtocolError, match="limit"):
        broker.send(struct.pack(">i", 1 << 20))


def test_an_http_server_is_told_apart_at_once() -> None:
    _, broker = opened()
    broker.next_request()
    with pytest.raises(RemoteProtocolError):
        broker.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


class Password:
    """An exchange of two requests."""

    def __init__(self) -> None:
        self.seen: list[Message] = []

    def exchange(self, host: str) -> Exchange:
        hello = cast("Request[Message]", SaslHandshakeRequest(mechanism="PLAIN"))
        self.seen.append(cast("Message", (yield hello)))
        secret = cast("Request[Message]", SaslAuthenticateRequest(auth_bytes=b"secret"))
        response = yield secret
        assert isinstance(response, SaslAuthenticateResponse)
        self.seen.append(response)
        if response.error_code:
            raise KafkaError(response.error_code, response.error_message or "")
        return 0


def test_an_authenticator_comes_between_versions_and_requests() -> None:
    password = Password()
    machine, broker = opened(password)
    machine.submit(HEARTBEAT, 0, 1000)
    broker.answer(broker.next_request(), SERVED)
    broker.answer(broker.next_request(), SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",)))
    assert machine.state is ConnectionState.AUTHENTICATING
    broker.answer(
        broker.next_request(),
        SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b""),
    )
    assert machine.events() == [BecameReady()]
    assert isinstance(broker.next_request().message, HeartbeatRequest)
    assert len(password.seen) == 2


def test_refused_credentials_are_kafkas_error() -> None:
    _, broker = opened(Password())
    broker.answer(broker.next_request(), SERVED)
    broker.answer(broker.next_request(), SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",)))
    asked = broker.next_request()
    refused = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, auth_bytes=b"", error_message="no"
    )
    with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
        broker.answer(asked, refused)


def test_no_answer_is_expected_where_the_broker_gives_none() -> None:
    machine, broker = ready(max_in_flight=1)
    machine.submit(HEARTBEAT, 0, 1000, has_answer=False)
    machine.submit(HEARTBEAT, 0, 1000)
    assert len(broker.next_requests()) == 2
    machine.left(0)
    assert machine.load == 1


def test_a_request_without_an_answer_is_sent_when_its_last_byte_has_left() -> None:
    machine, _ = ready()
    tokens = [machine.submit(HEARTBEAT, 0, 1000, has_answer=False) for _ in range(2)]
    first, second = machine.output(0)
    machine.left(len(second) + 1)
    assert machine.events() == []
    machine.left(len(second))
    assert machine.events() == [Sent(tokens[0])]
    machine.left(1)
    assert machine.events() == []
    assert (machine.expire(999), machine.next_deadline()) == (None, 1000)
    assert isinstance(machine.expire(1000), RequestTimedOutError)
    lost = KafkaError(ErrorCode.NETWORK_EXCEPTION, "gone")
    machine.close(lost)
    assert machine.events() == [Failed(tokens[1], lost)]
    assert len(first) == len(second)


@given(garbage=st.binary(max_size=300), head=st.booleans(), is_ready=st.booleans())
def test_any_bytes_are_refused_or_waited_on(garbage: bytes, head: bool, is_ready: bool) -> None:
    machine, broker = ready() if is_ready else opened()
    if is_ready:
        machine.submit(HEARTBEAT, 0, 1000)
    (asked,) = broker.next_requests()
    if head:  # the start of a real answer, so that its body is read
        garbage = struct.pack(">ii", len(garbage) + 4, asked.correlation_id) + garbage
    try:
        broker.send(garbage)
    except (RemoteProtocolError, KafkaError):
        return
    assert all(isinstance(event, (Answered, BecameReady)) for event in machine.events())
