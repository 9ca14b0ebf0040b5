"""Token providers that raise or hang: transient errors are retried, and nothing else waits."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest

from kohort.client.config.definitions import ConsumerConfig, make
from kohort.client.config.security import Token
from kohort.client.net.connecting import connect
from kohort.client.net.connection import Connection
from kohort.client.net.security.context import Security, security_of
from kohort.client.net.security.oauth import called
from kohort.client.net.security.sasl import OAuthBearer
from kohort.errors import AuthenticationError, BrokerUnavailableError, KafkaError
from kohort.spark.source.fetch.range_connection import BlockingConnection
from kohort.wire.messages.membership import HeartbeatRequest
from tests.client.loops import on_a_loop
from tests.client.token_server import taking_tokens

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
# The maximum threads of an executor, plus one.
MANY = 33

Provider = Callable[[], Token]


def machine(provider: Provider) -> Connection:
    return Connection(client_id="test", authenticator=OAuthBearer(called(provider), {}))


def awaited(provider: Callable[[], str]) -> Provider:
    async def ask() -> str:
        return provider()

    return ask


def as_it_is(provider: Callable[[], str]) -> Provider:
    return provider


@pytest.mark.parametrize("kind", [as_it_is, awaited])
@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ConnectionError("the token server restarts"), BrokerUnavailableError),
        (KeyError("no such secret"), AuthenticationError),
    ],
)
@on_a_loop
async def test_what_a_provider_raises_says_whether_it_is_asked_again(
    kind: Callable[[Callable[[], str]], Provider], raised: Exception, expected: type[KafkaError]
) -> None:
    def fail() -> str:
        raise raised

    provider = kind(fail)
    async with taking_tokens() as port:
        with pytest.raises(expected, match="sasl_oauth_token_provider") as caught:
            await connect("127.0.0.1", port, machine(provider), 60)
        assert caught.value.retriable == (expected is BrokerUnavailableError)
        assert raised in (caught.value.__cause__, caught.value)
        security = Security(None, OAuthBearer(called(provider), {}))
        with pytest.raises(expected, match="sasl_oauth_token_provider") as caught:
            await asyncio.to_thread(BlockingConnection, "127.0.0.1", port, "test", 60_000, security)


@on_a_loop
async def test_a_session_without_a_new_token_ends_as_a_connection_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Requests in flight may be processed: it is not a refusal, and a new connection may work."""
    tokens = ["first"]
    async with taking_tokens(session_ms=200) as port:
        connection = await connect("127.0.0.1", port, machine(tokens.pop), 60)
        with pytest.raises(BrokerUnavailableError, match=r"could not continue.*IndexError") as end:
            await connection.request(HEARTBEAT, 60_000)
    assert isinstance(end.value.__cause__, AuthenticationError)
    assert "the session could not continue" in caplog.text


@on_a_loop
async def test_a_provider_that_hangs_takes_one_thread(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing else waits for it, and once it returns, connections are opened again."""
    goes_on = threading.Event()
    calls: list[int] = []

    def provider() -> str:
        calls.append(1)
        goes_on.wait(60)
        return "token"

    authenticator = OAuthBearer(called(provider), {})

    def opening() -> Connection:
        return Connection(client_id="test", authenticator=authenticator)

    try:
        async with taking_tokens() as port:
            tries = [connect("127.0.0.1", port, opening(), 0.2) for _ in range(MANY)]
            for end in await asyncio.gather(*tries, return_exceptions=True):
                assert isinstance(end, BrokerUnavailableError)
            assert await asyncio.to_thread(lambda: len(calls)) == 1
            goes_on.set()
            (await connect("127.0.0.1", port, opening(), 60)).close()
            assert len(calls) == 2
    finally:
        goes_on.set()
    assert "never" not in caplog.text


@on_a_loop
async def test_a_provider_that_hangs_is_named_and_not_the_broker() -> None:
    goes_on = threading.Event()

    def provider() -> str:
        goes_on.wait(60)
        return "token"

    try:
        async with taking_tokens() as port:
            with pytest.raises(BrokerUnavailableError) as caught:
                await connect("127.0.0.1", port, machine(provider), 0.2)
    finally:
        goes_on.set()
    assert caught.value.message == (
        f"127.0.0.1:{port}: the connection was accepted, but sasl_oauth_token_provider gave no"
        " token in 0.2 s"
    )


@on_a_loop
async def test_a_token_endpoint_that_hangs_is_named_and_not_the_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/oauth/token"
        config = make(
            ConsumerConfig,
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_allow_unencrypted": True,
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": f"{url}?key=secret",
                "sasl_oauthbearer_client_id": "me",
                "sasl_oauthbearer_client_secret": "top-secret",
            },
        )
        opening = Connection(client_id="test", authenticator=security_of(config).authenticator)
        async with taking_tokens() as port:
            with pytest.raises(BrokerUnavailableError) as caught:
                await connect("127.0.0.1", port, opening, 0.2)
    assert f"but the token endpoint {url} gave no token in 0.2 s" in caught.value.message
