"""The client side of SCRAM, against RFC 7677 and a server written from RFC 5802."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.net.security.sasl import ScramAuthenticator
from kohort.client.net.security.scram import ITERATIONS_MAX, Scram
from kohort.errors import AuthenticationError, LocalProtocolError, RemoteProtocolError
from kohort.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_example_of_rfc_7677() -> None:
    scram = Scram("SCRAM-SHA-256", "user", NONCE)
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    proof = scram.proof(scram.challenged(CHALLENGE).hashed("pencil"))
    assert proof == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.verify(FINAL)


def test_a_server_that_does_not_know_the_password() -> None:
    scram = Scram("SCRAM-SHA-256", "user", NONCE)
    scram.first()
    scram.proof(scram.challenged(CHALLENGE).hashed("pencil"))
    with pytest.raises(RemoteProtocolError, match="signature is wrong"):
        scram.verify(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_what_a_server_computes(mechanism: str) -> None:
    """The server keeps only two keys of the password (RFC 5802, section 3)."""
    name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salt, iterations, password = b"0123456789", 5_000, "pass, =word"
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    server_key = hmac.digest(salted, b"Server Key", name)

    scram = Scram(mechanism, "a=b,c", "abc")
    first = scram.first()
    assert first == b"n,,n=a=3Db=2Cc,r=abc"
    challenge = b"r=abcdef,s=%s,i=%d" % (base64.b64encode(salt), iterations)
    last = scram.proof(scram.challenged(challenge).hashed(password))
    bare, _, proof = last.rpartition(b",p=")
    signed = b",".join((first[3:], challenge, bare))
    signature = hmac.digest(stored, signed, name)
    key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.new(name, key).digest() == stored
    scram.verify(b"v=" + base64.b64encode(hmac.digest(server_key, signed, name)))


def test_a_delegation_token_says_that_it_is_one() -> None:
    assert Scram("SCRAM-SHA-256", "id", "n", is_token=True).first() == b"n,,n=id,r=n,tokenauth=true"


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"r=other,s=c2FsdA==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=c2FsdA==,i=4096", "nonce"),
        (CHALLENGE.replace(b"4096", b"4095"), "4096 to"),
        (CHALLENGE.replace(b"4096", b"%d" % (ITERATIONS_MAX + 1)), "are accepted"),
        (CHALLENGE.replace(b"4096", b"9" * 5_000), "are accepted"),
        (CHALLENGE.replace(b"4096", b"-4096"), "are accepted"),
        (CHALLENGE.replace(b"4096", "\u0664096".encode()), "are accepted"),
        (CHALLENGE.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b""), "salt is empty"),
        (CHALLENGE.replace(b"W22Z", b"W2.Z"), "not base64"),
        (b"e=unknown-user", "refuses"),
        (b"m=more," + CHALLENGE, "extension"),
        (b"r=a", "incomplete"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_challenge_that_is_refused(challenge: bytes, why: str) -> None:
    scram = Scram("SCRAM-SHA-256", "user", NONCE)
    scram.first()
    with pytest.raises(RemoteProtocolError, match=why):
        scram.challenged(challenge)


def test_steps_out_of_order_are_the_callers_mistake() -> None:
    scram = Scram("SCRAM-SHA-256", "user", NONCE)
    with pytest.raises(LocalProtocolError):
        scram.verify(FINAL)


# Partly valid messages get further than random ones.
pieces = st.sampled_from([b"r=", NONCE.encode(), b"x", b",s=", b"c2FsdA==", b",i=", b"4096", b"v="])
messages = st.binary() | st.lists(pieces).map(b"".join)


@given(messages)
def test_any_challenge_is_a_value_or_refused(challenge: bytes) -> None:
    scram = Scram("SCRAM-SHA-256", "user", NONCE)
    scram.first()
    try:
        salting = scram.challenged(challenge)
    except RemoteProtocolError:
        return
    assert 4_096 <= salting.iterations <= ITERATIONS_MAX


@given(messages)
def test_any_final_message_is_refused_that_is_not_the_one(final: bytes) -> None:
    scram = Scram("SCRAM-SHA-256", "user", NONCE)
    scram.first()
    scram.challenged(CHALLENGE)
    scram.proof(b"salted")
    with pytest.raises(RemoteProtocolError):
        scram.verify(final)


@given(messages)
def test_an_exchange_that_breaks_the_rules_is_not_tried_again(challenge: bytes) -> None:
    user = ScramAuthenticator("SCRAM-SHA-256", "user", "pencil", nonce=lambda: NONCE)
    exchange = user.exchange("broker")
    next(exchange)
    exchange.send(SaslHandshakeResponse(error_code=0, mechanisms=("SCRAM-SHA-256",)))
    answer = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=challenge)
    try:
        exchange.send(answer)
    except AuthenticationError as error:
        refused = error
    else:
        return
    assert refused.fatal
    assert not refused.retriable
