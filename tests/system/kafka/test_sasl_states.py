"""Logins by SASL byte for byte: each step is answered as by Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kohort.broker import EmbeddedBroker, Security
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.peer import Peer
from tests.real_kafka.secured import PASSWORD, USER, SecuredKafka

CLOSED = "closed"
PLAIN, SCRAM = (SaslHandshakeRequest(mechanism=each) for each in ("PLAIN", "SCRAM-SHA-256"))
VERSIONS = ApiVersionsRequest(client_software_name="peer", client_software_version="1")
RIGHT, WRONG = f"\0{USER}\0{PASSWORD}".encode(), f"\0{USER}\0wrong".encode()
METADATA = MetadataRequest(topics=())
SCRIPTS: dict[str, tuple[Any, ...]] = {
    "a login": (VERSIONS, PLAIN, RIGHT, METADATA),
    "a wrong password": (PLAIN, WRONG, METADATA),
    "a second login": (PLAIN, RIGHT, PLAIN, RIGHT, METADATA),
    "two handshakes": (PLAIN, PLAIN, METADATA),
    "versions after a handshake": (PLAIN, VERSIONS, METADATA),
    "a client without a name": (ApiVersionsRequest(), PLAIN, RIGHT, METADATA),
    "another user": (SCRAM, f"n,a=eve,n={USER},r=abc".encode(), METADATA),
    "a delegation token": (SCRAM, f"n,,n={USER},r=abc,tokenauth=true".encode(), METADATA),
    "channel binding": (SCRAM, f"y,,n={USER},r=abc".encode(), METADATA),
    "an odd name": (SCRAM, b"n,,n=a=b,r=abc", METADATA),
    "no message": (SCRAM, b"", METADATA),
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """An embedded broker and Apache Kafka, with the same user."""
    mechanisms = "PLAIN", "SCRAM-SHA-256"
    security = Security("SASL_PLAINTEXT", users={USER: PASSWORD}, mechanisms=mechanisms)
    with ExitStack() as stack:
        ours = stack.enter_context(EmbeddedBroker(security=security))
        kafka = stack.enter_context(SecuredKafka(tmp_path_factory.mktemp("states")))
        yield ours.bootstrap_servers, kafka.addresses["SASL_PLAINTEXT"]


@pytest.mark.parametrize("script", list(SCRIPTS))
def test_each_step_is_answered_alike(script: str, both: tuple[str, str]) -> None:
    ours, theirs = (answers(address, *SCRIPTS[script]) for address in both)
    assert ours == theirs


def answers(address: str, *steps: Any) -> list[object]:
    found: list[object] = []
    with Peer(address) as peer:
        for step in steps:
            try:
                found.append(answer(peer, step))
            except ConnectionError:
                return [*found, CLOSED]
    return found


def answer(peer: Peer, step: Any) -> object:
    """A code and a text."""
    if isinstance(step, bytes):
        said = peer.ask(SaslAuthenticateRequest(auth_bytes=step), 2)
        return said.error_code, said.error_message or ""
    if isinstance(step, MetadataRequest):
        return bool(peer.ask(step, 12).brokers)
    version = 3 if isinstance(step, ApiVersionsRequest) else 1
    return peer.ask(step, version).error_code
