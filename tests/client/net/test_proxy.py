"""Connections through a proxy: its requests, its refusals, and secrets that are never shown."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import AsyncConsumer, AsyncProducer
from kohort.broker import EmbeddedBroker, Security
from kohort.client.config.definitions import ConsumerConfig, make, make_from_kafka
from kohort.client.net.proxy import Proxy, answered
from kohort.client.net.security.context import security_of
from kohort.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    KafkaError,
    KohortError,
    TlsError,
)
from kohort.spark.source.fetch.range_connection import BlockingConnection
from kohort.wire.messages.metadata import MetadataRequest
from tests.client.loops import on_a_loop
from tests.client.passing_proxy import Passing, passing

KINDS = ("socks5", "http")
USER = ("alice", "planted:p@ss/word")
URL_USER = "alice:planted%3Ap%40ss%2Fword@"
NAME = "broker.behind.test"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        started.create_topic("flights", 1)
        yield started


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=Security("SSL")) as started:
        yield started


def port_of(broker: EmbeddedBroker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


def behind(broker: EmbeddedBroker) -> dict[str, tuple[str, int]]:
    return {NAME: ("127.0.0.1", port_of(broker))}


@pytest.mark.parametrize("kind", KINDS)
@on_a_loop
async def test_all_goes_through_the_proxy_which_looks_up_names(
    kind: str, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kohort")
    async with passing(kind, Passing(user=USER, names=behind(broker))) as proxy:
        settings = {
            "bootstrap.servers": f"{NAME}:9092",
            "proxy.url": f"{kind}://{URL_USER}127.0.0.1:{proxy.port}",
        }
        async with AsyncProducer.from_config(settings) as producer:
            await (await producer.send("flights", kind.encode()))
        reading = {**settings, "group.id": kind, "auto.offset.reset": "earliest"}
        async with AsyncConsumer.from_config(reading, "flights") as consumer:
            assert await anext(consumer)
    assert {host for host, _ in proxy.asked} == {NAME, "127.0.0.1"}
    assert "planted" not in caplog.text


@pytest.mark.parametrize("kind", KINDS)
@on_a_loop
async def test_ranges_go_through_it_too(kind: str, broker: EmbeddedBroker) -> None:
    async with passing(kind, Passing(user=USER, names=behind(broker))) as proxy:
        url = f"{kind}://{URL_USER}127.0.0.1:{proxy.port}"
        security = security_of(make(ConsumerConfig, {"proxy_url": url}))

        def ask() -> int:
            connection = BlockingConnection(NAME, 9092, "test", 60_000, security)
            answer = connection.request(MetadataRequest(topics=()), 60_000)
            connection.close()
            return len(answer.brokers)

        assert await asyncio.to_thread(ask) == 1
    assert proxy.asked == [(NAME, 9092)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocking", [False, True])
@on_a_loop
async def test_tls_and_the_host_name_are_checked_through_it(
    kind: str, blocking: bool, secured: EmbeddedBroker
) -> None:
    settings = {**secured.client_settings()}
    del settings["bootstrap.servers"]
    async with passing(kind, Passing(names=behind(secured))) as proxy:
        settings["proxy.url"] = f"{kind}://127.0.0.1:{proxy.port}"
        await opened("localhost", port_of(secured), settings, blocking=blocking)
        with pytest.raises(TlsError, match="certificate is for another host"):
            await opened(NAME, 9092, settings, blocking=blocking)
        plain = {"proxy.url": settings["proxy.url"]}
        with pytest.raises(TlsError, match="the listener has TLS"):
            await opened(NAME, 9092, plain, blocking=blocking)


@pytest.mark.parametrize("blocking", [False, True])
@on_a_loop
async def test_a_listener_without_tls_is_found_through_it(
    blocking: bool, broker: EmbeddedBroker
) -> None:
    async with passing("http", Passing(names=behind(broker))) as proxy:
        settings = {
            "security.protocol": "SSL",
            "proxy.url": f"http://127.0.0.1:{proxy.port}",
        }
        with pytest.raises(TlsError, match="the listener has no TLS"):
            await opened(NAME, 9092, settings, blocking=blocking)


async def opened(host: str, port: int, settings: dict[str, str], *, blocking: bool) -> None:
    """Open a connection like a client or like a range reader, and close it."""
    config = make_from_kafka(ConsumerConfig, settings)
    if blocking:
        security = security_of(config)

        def open_one() -> None:
            BlockingConnection(host, port, "test", 60_000, security).close()

        await asyncio.to_thread(open_one)
        return
    from kohort.client.net.connecting import connect
    from kohort.client.net.connection import Connection

    security = security_of(config)
    machine = Connection(client_id="test", authenticator=security.authenticator)
    (await connect(host, port, machine, 60, security=security)).close()


SOCKS_TEXT = b"HTTP/1.1 400 Bad\r\n"
REFUSALS: list[tuple[str, Passing, str, type[KafkaError], str]] = [
    ("socks5", Passing(user=USER), "alice:wrong@", AuthenticationError, "refuses the user 'alice'"),
    ("socks5", Passing(user=USER), "", AuthenticationError, "wants a user"),
    ("http", Passing(user=USER), "alice:wrong@", AuthenticationError, "refuses the user 'alice'"),
    ("http", Passing(user=USER), "", AuthenticationError, "wants a user"),
    ("socks5", Passing(refuses=b"\5\4\0\1"), "", BrokerUnavailableError, "name is not known there"),
    ("socks5", Passing(refuses=b"\5\2\0\1"), "", BrokerUnavailableError, "its rules do not allow"),
    ("socks5", Passing(refuses=SOCKS_TEXT), "", BrokerUnavailableError, "no SOCKS5"),
    ("http", Passing(refuses=b"HTTP/1.1 403 Forbidden\r\n\r\n"), "", BrokerUnavailableError,
     "HTTP '403 Forbidden'"),
    ("http", Passing(refuses=b"SSH-2.0-x\r\n\r\n"), "", BrokerUnavailableError, "not speak HTTP"),
    ("http", Passing(refuses=b"HTTP/1.1 200"), "", BrokerUnavailableError, "closed the connection"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "does", "user", "expected", "why"), REFUSALS)
@pytest.mark.parametrize("blocking", [False, True])
@on_a_loop
async def test_each_refusal_names_the_proxy(
    blocking: bool, kind: str, does: Passing, user: str, expected: type[KafkaError], why: str
) -> None:
    async with passing(kind, does) as proxy:
        settings = {"proxy.url": f"{kind}://{user}127.0.0.1:{proxy.port}"}
        with pytest.raises(expected, match=why) as caught:
            await opened(NAME, 9092, settings, blocking=blocking)
    assert f"the proxy {kind}://127.0.0.1:{proxy.port}" in str(caught.value)
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("blocking", [False, True])
@on_a_loop
async def test_a_proxy_that_is_not_there(blocking: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"proxy.url": f"http://127.0.0.1:{port}"}
    with pytest.raises(BrokerUnavailableError, match=r"the proxy http.*cannot be reached"):
        await opened(NAME, 9092, settings, blocking=blocking)


@pytest.mark.parametrize("host", ["a b", "a\r\nX: y", "", "a" * 256, "a\0b", "é" * 300])
@pytest.mark.parametrize("kind", KINDS)
def test_a_name_of_a_broker_may_be_anything(kind: str, host: str) -> None:
    """It comes from the metadata, and must not inject a header."""
    dialogue = Proxy(f"{kind}://h:1").dialogue(host, 1)
    if kind == "socks5":
        assert [next(dialogue), next(dialogue)] == [b"\5\1\0", 2]
    with pytest.raises(BrokerUnavailableError, match="not a valid host name"):
        dialogue.send(b"\5\0") if kind == "socks5" else next(dialogue)


@given(st.sampled_from(KINDS), st.binary(max_size=300))
def test_any_bytes_of_a_proxy_end_or_are_refused(kind: str, sent: bytes) -> None:
    dialogue = Proxy(f"{kind}://u:p@h:1").dialogue("broker", 1)
    with suppress(KohortError):
        step = next(dialogue, None)
        while step is not None:
            count = 0 if isinstance(step, bytes) else step
            if len(sent) < count:
                return
            received, sent = sent[:count], sent[count:]
            step = answered(dialogue, received)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://h:1", "can be socks5:// or http://"),
        ("h:1", "can be socks5:// or http://"),
        ("socks5://h", "must have a host and port"),
        ("socks5://:1", "must have a host and port"),
        ("http://h:1/planted", "and no more"),
        ("http://h:x", "is not a URL"),
        ("http://planted@h:1", "without the other"),
        (f"socks5://u:{'planted' * 40}@h:1", "up to 255 bytes"),
        ("http://planted%3A:p@h:1", "no user with a colon"),
    ],
)
def test_urls_that_are_not_taken(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        make(ConsumerConfig, {"proxy_url": url})
    assert "planted" not in str(caught.value)


def test_nobody_is_shown_the_secret() -> None:
    config = make(ConsumerConfig, {"proxy_url": f"socks5://{URL_USER}h:1"})
    assert "planted" not in repr(config) + repr(security_of(config)) + str(Proxy("http://a:b@h:1"))
