"""Connections before authentication: their number and the size of their requests are bounded."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kohort import Producer
from kohort.broker import EmbeddedBroker, Security
from kohort.broker.net.connection import UNAUTHENTICATED_BYTES
from kohort.broker.net.receiver import STAGING_BYTES, FrameReceiver
from kohort.wire.codec.limits import DEFAULT_LIMITS
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.peer import Peer

LIMIT = 5
USERS = {"alice": "alice-secret"}
WAYS: dict[str, dict[str, Any]] = {
    "SASL": {"protocol": "SASL_PLAINTEXT", "users": USERS},
    "SASL with TLS": {"protocol": "SASL_SSL", "users": USERS},
    "certificates": {"protocol": "SSL", "client_certificates": True},
}
UNAUTHENTICATED = DEFAULT_LIMITS.max_unauthenticated_frame_bytes


@pytest.fixture(scope="module", params=list(WAYS))
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    security = Security(**WAYS[request.param])
    with EmbeddedBroker(security=security, max_unauthenticated_connections=LIMIT) as started:
        yield started


@pytest.fixture
def plain() -> Iterator[EmbeddedBroker]:
    security = Security(**WAYS["SASL"])
    with EmbeddedBroker(security=security, max_unauthenticated_connections=LIMIT) as started:
        yield started


def silent(broker: EmbeddedBroker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_the_oldest_of_too_many_is_closed(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """They do not disturb a client that authenticates, either."""
    caplog.set_level(logging.WARNING)
    with ExitStack() as stack:
        opened = [stack.enter_context(silent(broker)) for _ in range(4 * LIMIT)]
        assert all(map(is_closed, opened[:-LIMIT]))
        settings = broker.client_settings()
        with Producer.from_config(settings) as producer:
            for number in range(3):
                producer.send("t", b"%d" % number).result(60)
        opened[-1].settimeout(0)
        with pytest.raises(BlockingIOError):
            opened[-1].recv(1)
    (line,) = [each for each in caplog.messages if "have not authenticated" in each]
    assert f"more than {LIMIT} connections" in line
    assert "raise max_unauthenticated_connections" in line


def log_in(peer: Peer) -> None:
    assert peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    message = SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")
    assert peer.ask(message, 2).error_code == 0


def test_connections_that_have_logged_in_do_not_count(plain: EmbeddedBroker) -> None:
    with ExitStack() as stack:
        peers = []
        for _ in range(2 * LIMIT):
            peers.append(stack.enter_context(Peer(plain.bootstrap_servers)))
            log_in(peers[-1])
        for _ in range(2 * LIMIT):
            stack.enter_context(silent(plain))
        for peer in peers:
            assert peer.ask(MetadataRequest(topics=()), 12).brokers


@pytest.mark.parametrize("length", [UNAUTHENTICATED + 1, 2**31 - 1])
def test_a_long_frame_is_refused_when_it_is_announced(length: int, plain: EmbeddedBroker) -> None:
    with silent(plain) as connection:
        connection.sendall(struct.pack(">ihhi", length, 18, 3, 1))
        assert is_closed(connection)


def test_frames_may_be_long_after_it(plain: EmbeddedBroker) -> None:
    plain.create_topic("t")
    with Peer(plain.bootstrap_servers) as peer:
        log_in(peer)
        names = tuple(f"{number:05}-{'x' * 200}" for number in range(500))
        wanted = MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=name) for name in names),
            allow_auto_topic_creation=False,
        )
        assert len(peer.ask(wanted, 12).topics) == len(names)


def test_what_is_sent_ahead_of_the_answer_is_served_afterwards(plain: EmbeddedBroker) -> None:
    with Peer(plain.bootstrap_servers) as peer:
        peer.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        peer.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2)
        for _ in range(100):
            peer.send(MetadataRequest(topics=()), 12)
        for _ in range(102):
            assert peer.frame()


def test_a_client_without_tls_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(security=Security("SSL")) as broker, silent(broker) as connection:
        connection.sendall(struct.pack(">ihhi", 10, 18, 3, 1) + b"\xff\xff")
        assert is_closed(connection)
    (line,) = caplog.messages
    assert "closing the connection of /127.0.0.1: the TLS handshake failed" in line


def test_one_costs_no_more_than_is_documented() -> None:
    receiver = FrameReceiver(UNAUTHENTICATED, UNAUTHENTICATED_BYTES)
    assert len(receiver.space()) == UNAUTHENTICATED_BYTES
    receiver.space()[:8] = struct.pack(">ii", UNAUTHENTICATED, 0)
    assert receiver.received(8) == []
    assert len(receiver.space()) <= 2 * UNAUTHENTICATED_BYTES
    got = 4
    while got < UNAUTHENTICATED - 1:
        count = min(len(receiver.space()), UNAUTHENTICATED - 1 - got)
        assert receiver.received(count) == []
        got += count
    assert len(receiver.space()) == 1


def test_a_frame_that_has_begun_is_kept_when_there_is_more_room() -> None:
    receiver = FrameReceiver(UNAUTHENTICATED, UNAUTHENTICATED_BYTES)
    view = receiver.space()
    view[:6] = struct.pack(">i", 5) + b"ab"
    assert receiver.received(6) == []
    receiver.widen(DEFAULT_LIMITS.max_frame_bytes)
    assert len(receiver.space()) == STAGING_BYTES - 6
    receiver.space()[:3] = b"cde"
    assert [bytes(each) for each in receiver.received(3)] == [b"abcde"]
