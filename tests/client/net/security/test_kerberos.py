"""Kerberos without a KDC: the exchange of RFC 4752, its failures, and its settings."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.config.definitions import ConsumerConfig, make, make_from_kafka
from kohort.client.net.security.auth import Work
from kohort.client.net.security.context import security_of
from kohort.client.net.security.kerberos import AtHost, Context, explained
from kohort.errors import AuthenticationError, BrokerUnavailableError, ConfigError, KohortError
from kohort.extras import MissingExtraError
from kohort.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
KERBEROS: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}
AUTH, PRIVACY = 1, 4


class GSSError(Exception):
    """Like the error of the package `gssapi`, with an error number of krb5."""

    def __init__(self, minor: int) -> None:
        super().__init__(f"Minor ({minor})")
        self.min_code = minor


class MissingCredentialsError(GSSError):
    pass


class ExpiredCredentialsError(GSSError):
    pass


class FakeContext:
    """The client's side: one token each way; signed messages start with S."""

    def __init__(self) -> None:
        self.complete = False

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            return b"ticket"
        if token != b"answer":
            raise GSSError(1)
        self.complete = True
        return None

    def wrap(self, message: bytes, encrypt: bool) -> object:
        assert not encrypt
        return SimpleNamespace(message=b"S" + message)

    def unwrap(self, message: bytes) -> object:
        if not message.startswith(b"S"):
            raise GSSError(2)
        return SimpleNamespace(message=message[1:])


def exchanged(*answers: bytes) -> list[bytes]:
    """The messages sent to a broker with these answers, then the length of the session."""
    exchange = AtHost(FakeContext, "kafka/broker").exchange()
    sent: list[bytes] = []
    step = next(exchange)
    assert isinstance(step, Work)
    step = exchange.send(step.run())
    assert isinstance(step, SaslHandshakeRequest)
    assert step.mechanism == "GSSAPI"
    step = exchange.send(SaslHandshakeResponse(error_code=0, mechanisms=()))
    for data in answers:
        assert isinstance(step, SaslAuthenticateRequest)
        sent.append(bytes(step.auth_bytes))
        answer = SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=data, session_lifetime_ms=7
        )
        try:
            step = exchange.send(answer)
        except StopIteration as end:
            return [*sent, b"%d ms" % end.value]
    raise AssertionError("the exchange goes on")


def layers(bits: int) -> bytes:
    return b"S" + bytes([bits]) + (65_536).to_bytes(3, "big")


@pytest.mark.parametrize("bits", [AUTH, AUTH | PRIVACY])
def test_the_exchange(bits: int) -> None:
    """The client chooses the layer that Kafka supports, and requests no other user."""
    sent = exchanged(b"answer", layers(bits), b"")
    assert sent == [b"ticket", b"", b"S" + bytes([AUTH, 0, 0, 0]), b"7 ms"]


def test_a_broker_that_wants_encryption_by_kerberos() -> None:
    with pytest.raises(AuthenticationError, match=r"kafka/broker: .* leave the qop .* at auth"):
        exchanged(b"answer", layers(PRIVACY))


@given(st.lists(st.binary(max_size=8) | st.sampled_from([b"answer", layers(AUTH)]), min_size=4))
def test_any_answers_end_the_exchange_or_are_refused(answers: list[bytes]) -> None:
    try:
        sent = exchanged(*answers)
    except KohortError:
        return
    assert len(sent) == 4


UNKNOWN_SERVICE, SKEW, UNREACHABLE, EXPIRED = -1765328377, -1765328347, -1765328228, -1765328352


@pytest.mark.parametrize(
    ("raised", "passes", "why"),
    [
        (GSSError(UNKNOWN_SERVICE), False, "compare sasl.kerberos.service.name"),
        (GSSError(UNKNOWN_SERVICE + 2**32), False, "compare sasl.kerberos.service.name"),
        (GSSError(SKEW), False, "the clocks of this machine and of the KDC"),
        (GSSError(EXPIRED), False, "has expired: run kinit again"),
        (ExpiredCredentialsError(0), False, "has expired: run kinit again"),
        (MissingCredentialsError(0), False, "there is no ticket: run kinit, or set useKeyTab"),
        (GSSError(UNREACHABLE), True, "no KDC can be reached: check krb5.conf"),
        (GSSError(5), False, "Minor"),
    ],
)
def test_each_failure_says_what_to_do(raised: Exception, passes: bool, why: str) -> None:
    def fail() -> Context:
        raise raised

    step = next(AtHost(fail, "kafka/broker").exchange())
    assert isinstance(step, Work)
    with pytest.raises(KohortError, match=f"GSSAPI at kafka/broker: .*{why}") as caught:
        step.run()
    kind = BrokerUnavailableError if passes else AuthenticationError
    assert isinstance(caught.value, kind)


def test_a_key_tab_without_the_key_is_named() -> None:
    error = explained(MissingCredentialsError(-1765328189), "kafka/broker", "/etc/me.keytab")
    assert "the key tab /etc/me.keytab cannot be read, or has no key" in str(error)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"sasl_username": "a"}, "have no effect with GSSAPI"),
        ({"sasl_kerberos_service_name": "kafka/host"}, "first part of a principal"),
        ({"sasl_oauthbearer_scope": "x"}, "is for sasl.mechanism=OAUTHBEARER"),
        ({"sasl_jaas_config": f"{MODULE} useKeyTab=true;"}, "useKeyTab=true needs keyTab"),
        ({"sasl_jaas_config": f'{MODULE} keyTab="k";'}, "no effect without useKeyTab=true"),
        ({"sasl_jaas_config": f'{MODULE} ticketCache="k";'}, "without useTicketCache=true"),
        ({"sasl_jaas_config": f"{MODULE} tryFirstPass=true;"}, "not tryFirstPass"),
        ({"sasl_kerberos_service_name": "a", "sasl_jaas_config": f"{MODULE} serviceName=b;"},
         "exclude each other"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(more: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make(ConsumerConfig, {**KERBEROS, **more})


def test_settings_of_java_work_as_they_are() -> None:
    jaas = f'{MODULE} useKeyTab=true storeKey=true keyTab="k" principal="me@R" serviceName=kfk;'
    config = make_from_kafka(
        ConsumerConfig,
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": jaas,
            "sasl.kerberos.ticket.renew.jitter": "0.05",
        },
    )
    assert config.kerberos_service() == "kfk"
    assert make(ConsumerConfig, KERBEROS).kerberos_service() == "kafka"


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'kohort\[kerberos\]'"):
        security_of(make(ConsumerConfig, {**KERBEROS, "security_protocol": "SASL_PLAINTEXT"}))


def test_other_mechanisms_load_nothing_of_it() -> None:
    code = (
        "import sys; from kohort.client.net.security.context import security_of;"
        "from kohort.client.config.definitions import ConsumerConfig, make;"
        "security_of(make(ConsumerConfig, {'security_protocol': 'SASL_PLAINTEXT',"
        " 'sasl_mechanism': 'SCRAM-SHA-256', 'sasl_username': 'u', 'sasl_password': 'p'}));"
        "assert not {'gssapi', 'kohort.client.net.security.kerberos', 'botocore'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
