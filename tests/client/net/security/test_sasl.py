"""SASL exchanges, inside the state machine of a connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.net.connection import BecameReady, Connection, ConnectionState, WorkWanted
from kohort.client.net.security.auth import Authenticator
from kohort.client.net.security.sasl import OAuthBearer, Plain, ScramAuthenticator
from kohort.errors import AuthenticationError, ErrorCode, RemoteProtocolError, RequestTimedOutError
from kohort.wire.messages.membership import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.client.net.security.test_scram import CHALLENGE, FINAL, NONCE
from tests.client.net.test_connection import HEARTBEAT, SERVED, Broker, opened

ACCEPTED = SaslHandshakeResponse(error_code=0, mechanisms=())


def answered(data: bytes = b"", lasts_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=data, session_lifetime_ms=lasts_ms
    )


def asked(broker: Broker, now: int = 0) -> bytes:
    """The bytes of the only SaslAuthenticate that is sent and not yet answered."""
    (request,) = broker.next_requests(now)
    broker.last = request  # type: ignore[attr-defined]  # for `reply`
    assert isinstance(request.message, SaslAuthenticateRequest)
    return bytes(request.message.auth_bytes)


def reply(broker: Broker, response: SaslAuthenticateResponse, now: int = 0) -> None:
    broker.answer(broker.last, response, now)  # type: ignore[attr-defined]  # of `asked`


def shaken(authenticator: Authenticator) -> tuple[Connection, Broker]:
    machine, broker = opened(authenticator)
    broker.answer(broker.next_request(), SERVED)
    return machine, broker


def accept(broker: Broker, now: int = 0) -> None:
    (request,) = broker.next_requests(now)
    assert isinstance(request.message, SaslHandshakeRequest)
    broker.answer(request, ACCEPTED, now)


def test_plain() -> None:
    machine, broker = shaken(Plain("alice", "s3cret"))
    accept(broker)
    assert asked(broker) == b"\0alice\0s3cret"
    reply(broker, answered())
    assert machine.events() == [BecameReady()]


def test_scram_waits_for_the_hash_and_keeps_it() -> None:
    user = ScramAuthenticator("SCRAM-SHA-256", "user", "pencil", nonce=lambda: NONCE)
    for is_first in (True, False):
        machine, broker = shaken(user)
        accept(broker)
        assert asked(broker) == b"n,,n=user,r=" + NONCE.encode()
        reply(broker, answered(CHALLENGE))
        if is_first:
            (wanted,) = machine.events()
            assert isinstance(wanted, WorkWanted)
            assert broker.next_requests() == []
            assert machine.next_deadline() is not None
            machine.worked(wanted.work.run(), 5)
        assert asked(broker).endswith(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
        reply(broker, answered(FINAL))
        assert machine.events() == [BecameReady()]


def test_work_that_is_not_done_in_time_ends_the_connection() -> None:
    machine, _ = shaken(OAuthBearer(lambda: "token", {}))
    assert isinstance(machine.events()[0], WorkWanted)
    assert machine.expire(9_999) is None
    assert isinstance(machine.expire(10_000), RequestTimedOutError)


def test_a_token_goes_with_its_extensions() -> None:
    machine, broker = shaken(OAuthBearer(lambda: "abc.def", {"logicalCluster": "lkc-1"}))
    machine.events()
    machine.worked("abc.def", 0)
    accept(broker)
    assert asked(broker) == b"n,,\x01auth=Bearer abc.def\x01logicalCluster=lkc-1\x01\x01"
    reply(broker, answered())
    assert machine.events() == [BecameReady()]


def test_a_token_that_is_refused_is_answered_before_the_broker_says_so() -> None:
    machine, broker = shaken(OAuthBearer(lambda: "t", {}))
    machine.worked("t", 0)
    accept(broker)
    asked(broker)
    reply(broker, answered(b'{"status":"invalid_token"}'))
    assert asked(broker) == b"\x01"
    refused = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="expired", auth_bytes=b""
    )
    with pytest.raises(AuthenticationError, match=r"invalid_token.*expired"):
        reply(broker, refused)


@pytest.mark.parametrize("token", [None, 5, "", " ", "a\x01b", "\u00e9", b"bytes"])
def test_something_else_than_a_token(token: object) -> None:
    machine, _ = shaken(OAuthBearer(lambda: "", {}))
    with pytest.raises(AuthenticationError, match="printable ASCII"):
        machine.worked(token, 0)


def test_a_mechanism_that_is_not_enabled_names_those_that_are() -> None:
    _, broker = shaken(Plain("alice", "s3cret"))
    refused = SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=("SCRAM-SHA-512", "GSSAPI")
    )
    request = broker.next_request()
    with pytest.raises(AuthenticationError, match=r"enabled are: GSSAPI, SCRAM-SHA-512$"):
        broker.answer(request, refused)


def test_a_text_of_the_broker_is_shown_on_one_line_and_cut() -> None:
    machine, broker = shaken(Plain("alice", "s3cret"))
    accept(broker)
    asked(broker)
    text = "no\nWARNING: \x1b[31mall is lost\u202e" + "x" * 30_000
    refused = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text, auth_bytes=b""
    )
    with pytest.raises(AuthenticationError) as caught:
        reply(broker, refused)
    assert r"no\nWARNING: \x1b[31mall is lost\u202exxx" in caught.value.message
    assert caught.value.message.endswith("x...")
    assert len(caught.value.message) < 1_100
    assert machine.events() == []


def in_session(lasts_ms: int) -> tuple[Connection, Broker]:
    machine, broker = shaken(Plain("alice", "s3cret"))
    accept(broker)
    asked(broker)
    reply(broker, answered(lasts_ms=lasts_ms))
    assert machine.events() == [BecameReady()]
    return machine, broker


def test_a_session_is_renewed_behind_what_was_asked_before() -> None:
    """KIP-368: answers to earlier requests come first, and later requests wait."""
    machine, broker = in_session(10_000)
    machine.submit(HEARTBEAT, 8_000, 30_000)
    (before,) = broker.next_requests(8_000)
    assert machine.next_deadline() == 9_000
    (handshake,) = broker.next_requests(9_000)
    assert isinstance(handshake.message, SaslHandshakeRequest)
    machine.submit(HEARTBEAT, 9_000, 30_000)
    assert broker.next_requests(9_000) == []
    broker.answer(before, HeartbeatResponse(error_code=0), 9_100)
    broker.answer(handshake, ACCEPTED, 9_200)
    asked(broker, 9_200)
    reply(broker, answered(lasts_ms=10_000), 9_300)
    (after,) = broker.next_requests(9_300)
    assert isinstance(after.message, HeartbeatRequest)
    assert [type(each).__name__ for each in machine.events()] == ["Answered"]
    broker.answer(after, HeartbeatResponse(error_code=0), 9_400)
    assert machine.next_deadline() == 9_300 + 9_000


def test_an_idle_connection_is_renewed_before_its_next_request() -> None:
    machine, broker = in_session(10_000)
    machine.submit(HEARTBEAT, 100_000, 1_000)
    accept(broker, 100_000)
    asked(broker, 100_000)
    reply(broker, answered(lasts_ms=10_000), 100_000)
    (request,) = broker.next_requests(100_000)
    assert isinstance(request.message, HeartbeatRequest)


def test_a_session_that_cannot_be_renewed_ends_the_connection() -> None:
    machine, broker = in_session(10_000)
    accept(broker, 9_000)
    assert machine.state is ConnectionState.AUTHENTICATING
    asked(broker, 9_000)
    refused = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="gone", auth_bytes=b""
    )
    with pytest.raises(AuthenticationError, match="gone"):
        reply(broker, refused)


USERS: list[Authenticator] = [
    Plain("u", "p"),
    ScramAuthenticator("SCRAM-SHA-512", "u", "p", nonce=lambda: NONCE),
    OAuthBearer(lambda: "t", {}),
]


@given(st.sampled_from(USERS), st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_from_a_server(user: Authenticator, sent: list[bytes]) -> None:
    """They are a valid answer, a refusal by Kafka, or not Kafka's protocol."""
    machine, broker = shaken(user)
    if isinstance(user, OAuthBearer):
        machine.worked("t", 0)
    try:
        for data in sent:
            for request in broker.next_requests():
                head = request.correlation_id.to_bytes(4, "big")
                broker.send((len(data) + 4).to_bytes(4, "big") + head + data)
    except (RemoteProtocolError, AuthenticationError):
        return
