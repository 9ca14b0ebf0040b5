"""The gate of a listener with SASL: without a valid login, no client passes, whatever it sends."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker import BrokerConfig, EmbeddedBroker, Security
from kohort.broker.log.storage import Storage
from kohort.broker.net.credentials import Credentials
from kohort.broker.net.sasl_mechanisms import MECHANISMS, RefusedError
from kohort.broker.net.unauthenticated import RateLimitedLog
from kohort.errors import ConfigError, ErrorCode
from kohort.wire.codec.limits import DEFAULT_LIMITS
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.peer import Peer

USERS = {"alice": "alice-secret"}
CREDENTIALS = Credentials(USERS, MECHANISMS, Path("nowhere"), Storage())
_AFTER_LOGIN = "SaslAuthenticate request received after successful authentication"
VERSIONS = ApiVersionsRequest(client_software_name="peer", client_software_version="1.0")
VERSIONS = ApiVersionsRequest(client_software_name="peer", client_software_version="1.0")
METADATA = MetadataRequest(topics=()), 12


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    security = Security("SASL_PLAINTEXT", users=USERS)
    with EmbeddedBroker(security=security) as started:
        yield started


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.bootstrap_servers) as connected:
        yield connected


def log_in(peer: Peer, password: str, mechanism: str = "PLAIN") -> int:
    assert peer.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    message = SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + password.encode())
    return peer.ask(message, 2).error_code


def test_who_has_logged_in_is_served(peer: Peer) -> None:
    assert peer.ask(VERSIONS, 3).error_code == 0  # clients send this first
    assert log_in(peer, "alice-secret") == 0
    assert peer.ask(*METADATA).brokers


def test_nothing_is_served_before(peer: Peer) -> None:
    peer.send(*METADATA)
    assert peer.is_closed()


def test_a_wrong_password_ends_the_connection(peer: Peer) -> None:
    assert log_in(peer, "alice-secre") == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert peer.is_closed()


def test_an_exchange_begins_with_the_handshake(peer: Peer) -> None:
    answer = peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert peer.is_closed()


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(peer: Peer) -> None:
    answer = peer.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [("PLAIN", b"\0al\nice\0wrong"), ("SCRAM-SHA-256", b"n,a=root,n=al\nice,r=abc")],
)
def test_a_failed_login_is_logged(
    mechanism: str, message: bytes, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert peer.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    assert peer.ask(SaslAuthenticateRequest(auth_bytes=message), 2).error_code
    (line,) = caplog.messages
    begin = f"a login of /127.0.0.1 as 'al\\nice' by '{mechanism}' failed: Authentication failed: "
    assert line.startswith(begin)


def test_bad_bytes_before_a_login_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    security = Security("SASL_PLAINTEXT", users=USERS)
    with EmbeddedBroker(security=security) as started:
        for _ in range(30):
            with Peer(started.bootstrap_servers) as one:
                one.socket.sendall(bytes(8))
                assert one.is_closed()
    assert len(caplog.messages) == 10
    assert caplog.messages[-1].endswith("(more are left out for up to 60 s)")


def test_a_line_says_how_many_were_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = RateLimitedLog(lambda: now)
    for number in range(15):
        log.warning("number %d", number)
    now = 60.0
    log.warning("later")
    log.warning("last")
    said = ["later (left out 5 similar lines before)", "last"]
    assert caplog.messages[10:] == said


def test_a_session_without_end_is_not_renewed(peer: Peer) -> None:
    assert log_in(peer, "alice-secret") == 0
    again = peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert (again.error_code, again.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, ())
    answer = peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert answer.error_message == _AFTER_LOGIN
    assert peer.ask(*METADATA).brokers  # the connection stays open


def test_a_session_cannot_be_renewed_with_an_unknown_mechanism() -> None:
    security = Security("SASL_PLAINTEXT", users=USERS, session_ms=60_000)
    with EmbeddedBroker(security=security) as started, Peer(started.bootstrap_servers) as peer:
        assert log_in(peer, "alice-secret") == 0
        answer = peer.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert peer.is_closed()


@pytest.mark.parametrize(
    "between", [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (ApiVersionsRequest(), 3)]
)
def test_nothing_comes_between_handshake_and_login(between: tuple[Any, int], peer: Peer) -> None:
    assert peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert peer.ask(*between).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert peer.is_closed()


def test_another_request_while_a_session_is_renewed_ends_the_connection() -> None:
    security = Security("SASL_PLAINTEXT", users=USERS, session_ms=60_000)
    with EmbeddedBroker(security=security) as started, Peer(started.bootstrap_servers) as peer:
        assert log_in(peer, "alice-secret") == 0
        assert log_in(peer, "alice-secret") == 0
        assert peer.ask(*METADATA).brokers
        assert peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        peer.send(*METADATA)
        assert peer.is_closed()


def test_another_user_cannot_take_over_a_connection() -> None:
    users = {**USERS, "bob": "bob-secret"}
    security = Security("SASL_PLAINTEXT", users=users, session_ms=60_000)
    with EmbeddedBroker(security=security) as started, Peer(started.bootstrap_servers) as peer:
        assert log_in(peer, "alice-secret") == 0
        assert peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        answer = peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0bob\0bob-secret"), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "principals" in (answer.error_message or "")


def test_a_client_that_has_not_logged_in_is_not_listened_to_for_long(peer: Peer) -> None:
    rest = bytes(DEFAULT_LIMITS.max_unauthenticated_frame_bytes)
    peer.socket.sendall(struct.pack(">ihhi", 8 + len(rest), 18, 3, 1) + rest)
    assert peer.is_closed()


@given(
    mechanism=st.sampled_from(sorted(MECHANISMS)),
    messages=st.lists(st.binary(max_size=80) | st.just(b"n,,n=alice,r=abc"), max_size=3),
)
def test_no_bytes_are_a_way_in(mechanism: str, messages: list[bytes]) -> None:
    exchange = MECHANISMS[mechanism](CREDENTIALS)
    with suppress(RefusedError):
        for message in messages:
            assert isinstance(exchange.answer(message), bytes)
    assert exchange.user is None


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ("n,a=root,n=alice,r=abc", "an authorization id that is different from username"),
        ("n,,n=alice,r=abc,tokenauth=true", "invalid credentials"),
        ("n,,n=alice,r=abc,tokenauth=TRUE", "invalid credentials"),
        ("y,,n=alice,r=abc", "invalid credentials"),
        ("n,,n=ali=2xe,r=abc", "invalid credentials"),
        ("n,,n=,r=abc", "invalid credentials"),
        ("n,,n=alice,r=", "invalid credentials"),
    ],
)
def test_scram_refuses_what_kafka_refuses(first: str, told: str) -> None:
    exchange = MECHANISMS["SCRAM-SHA-256"](CREDENTIALS)
    with pytest.raises(RefusedError, match=told):
        exchange.answer(first.encode())


@pytest.mark.parametrize("start", ["n,,", "n,a=alice,"])
@pytest.mark.parametrize("before", ["", "m=x,"])
@pytest.mark.parametrize("after", ["", ",tokenauth=false", ",x=y"])
def test_scram_takes_what_kafka_takes(start: str, before: str, after: str) -> None:
    exchange = MECHANISMS["SCRAM-SHA-256"](CREDENTIALS)
    bare = f"{before}n=alice,r=abc{after}"
    challenge = exchange.answer(f"{start}{bare}".encode()).decode()
    exchange.answer(proof(start, bare, challenge, USERS["alice"]))
    assert exchange.user == "alice"


def proof(start: str, bare: str, challenge: str, password: str) -> bytes:
    """Return the last message of a SCRAM-SHA-256 client (RFC 5802)."""
    given = dict(part.split("=", 1) for part in challenge.split(","))
    salt, iterations = base64.b64decode(given["s"]), int(given["i"])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    without = f"c={base64.b64encode(start.encode()).decode()},r={given['r']}"
    signed = f"{bare},{challenge},{without}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    shown = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{without},p={base64.b64encode(shown).decode()}".encode()


def test_an_unknown_user_is_challenged_like_a_known_one() -> None:
    for name in (b"alice", b"nobody"):
        found = {
            MECHANISMS["SCRAM-SHA-256"](CREDENTIALS)
            .answer(b"n,,n=" + name + b",r=abc")
            .split(b",")[1]
            for _ in range(3)
        }
        assert len(found) == 1  # a name always has the same salt


def test_passwords_are_in_no_text() -> None:
    security = Security("SASL_SSL", users=USERS)
    texts = repr(security) + repr(CREDENTIALS) + repr(BrokerConfig(security=security))
    assert "alice-secret" not in texts


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"protocol": "PLAINTEXT"}, "is not SSL"),
        ({"protocol": "SASL_SSL"}, "needs users"),
        ({"protocol": "SASL_SSL", "users": USERS, "mechanisms": ["GSSAPI"]}, "GSSAPI"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Security(**given)  # type: ignore[arg-type]  # the wrong types are tested


def test_other_machines_reach_only_what_demands_authentication() -> None:
    with pytest.raises(ConfigError, match="requires no authentication"):
        BrokerConfig(host="0.0.0.0", security=Security("SSL"))
    BrokerConfig(host="0.0.0.0", security=Security("SSL", client_certificates=True))
    BrokerConfig(host="0.0.0.0", security=Security("SASL_SSL", users=USERS))


def test_a_user_that_there_is_not_has_no_settings() -> None:
    with pytest.raises(ConfigError, match="'bob' is not among"):
        Security("SASL_PLAINTEXT", users=USERS).client_settings("bob")
