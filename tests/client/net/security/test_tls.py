"""TLS servers that misbehave: no call hangs beyond its timeouts; each error says what is wrong."""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kohort import AdminClient, Consumer, EmbeddedBroker, Producer, TopicPartition
from kohort.client.config.definitions import ConsumerConfig, make
from kohort.client.net.security.context import security_of
from kohort.client.net.security.oauth import TokenEndpoint
from kohort.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    KafkaError,
    KohortError,
    RemoteProtocolError,
    TlsError,
)
from kohort.spark.source.fetch.range_connection import BlockingConnection
from tests.real_kafka.broker import free_ports
from tests.real_kafka.certificates import Authority

Handler = Callable[[socket.socket], None]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server_context(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("broker").keystore)
    return context


@contextmanager
def serving(handle: Handler) -> Iterator[int]:
    """A server on loopback that handles each connection in its own thread."""
    server = socket.create_server(("127.0.0.1", 0))

    def one(connection: socket.socket) -> None:
        with connection:
            try:
                handle(connection)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(60)


def settings(port: int, authority: Authority, **others: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"localhost:{port}",
        "security_protocol": "SSL",
        "ssl_ca_location": str(authority.ca),
        "socket_connection_setup_timeout_ms": 500,
        "default_api_timeout_ms": 1_000,
        **others,
    }


def errors(port: int, authority: Authority, **others: Any) -> list[KohortError]:
    """The errors of a client on an event loop, and of one on a blocking socket."""
    given = settings(port, authority, **others)
    found: list[KohortError] = []
    with pytest.raises(KohortError) as caught, AdminClient(**given) as admin:
        admin.list_topics()
    found.append(caught.value)
    with pytest.raises(KohortError) as caught:
        BlockingConnection("localhost", port, "c", 500, security_of(make(ConsumerConfig, given)))
    found.append(caught.value)
    return found


def silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def hang_up(connection: socket.socket) -> None:
    connection.recv(4096)


def garbage(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"\x16\x03\x03\x00\x20" + bytes(range(32)))
    silent(connection)


def http(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    silent(connection)


def secured(context: ssl.SSLContext, then: Handler) -> Handler:
    def handle(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            then(encrypted)

    return handle


def test_a_server_that_says_nothing(authority: Authority) -> None:
    with serving(silent) as port:
        for error in errors(port, authority):
            assert isinstance(error, BrokerUnavailableError)
            assert "TLS handshake" in str(error)


def test_a_server_that_says_nothing_after_the_handshake(
    authority: Authority, server_context: ssl.SSLContext
) -> None:
    with serving(secured(server_context, silent)) as port:
        for error in errors(port, authority):
            assert isinstance(error, KafkaError)
            assert error.retriable


def test_a_server_that_closes_in_the_handshake(authority: Authority) -> None:
    with serving(hang_up) as port:
        for error in errors(port, authority):
            assert isinstance(error, BrokerUnavailableError)
            assert "during the TLS handshake" in str(error)


def test_a_server_that_closes_without_tls() -> None:
    """A broker that is starting or stopping does this: the client waits for it."""
    with (
        serving(hang_up) as port,
        AdminClient(bootstrap_servers=f"localhost:{port}", default_api_timeout_ms=1_000) as admin,
        pytest.raises(BrokerUnavailableError, match="before it answered the first request"),
    ):
        admin.list_topics()
    with serving(hang_up) as port, pytest.raises(BrokerUnavailableError, match="closed by"):
        BlockingConnection("localhost", port, "c", 10_000)


def test_a_server_that_closes_after_the_handshake(
    authority: Authority, server_context: ssl.SSLContext
) -> None:
    with serving(secured(server_context, hang_up)) as port:
        for error in errors(port, authority):
            assert isinstance(error, BrokerUnavailableError)


@pytest.mark.parametrize("handle", [garbage, http])
def test_a_server_that_does_not_speak_tls(handle: Handler, authority: Authority) -> None:
    with serving(handle) as port:
        for error in errors(port, authority):
            assert isinstance(error, RemoteProtocolError)
            assert "TLS" in str(error)


@pytest.mark.parametrize("hostile", [b"", b"\0\0\0\4\0\0\0\0", b"\xff" * 64, b"\x7f\xff\xff\xff"])
def test_bytes_of_a_server_that_is_trusted(
    hostile: bytes, authority: Authority, server_context: ssl.SSLContext
) -> None:
    def handle(connection: socket.socket) -> None:
        connection.sendall(hostile)
        silent(connection)

    with serving(secured(server_context, handle)) as port:
        for error in errors(port, authority):
            assert isinstance(error, (KafkaError, RemoteProtocolError))
            assert not isinstance(error, TlsError)


def test_a_record_that_was_changed_on_the_way(
    authority: Authority, server_context: ssl.SSLContext
) -> None:
    def handle(connection: socket.socket) -> None:
        raw = connection.dup()
        with server_context.wrap_socket(connection, server_side=True) as encrypted, raw:
            encrypted.recv(1)
            raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            silent(encrypted)

    with serving(handle) as port:
        for error in errors(port, authority):
            assert not isinstance(error, TlsError), "the next connection may be better"


def test_a_listener_without_tls_is_found_out(embedded_broker: str, authority: Authority) -> None:
    port = int(embedded_broker.rpartition(":")[2])
    for error in errors(port, authority, default_api_timeout_ms=3_600_000):
        assert isinstance(error, TlsError)
        assert "the listener has no TLS" in str(error)


@pytest.fixture(scope="module")
def embedded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("embedded")) as broker:
        yield broker.bootstrap_servers


# ------------------------------------------------------------------------------ token endpoints


@contextmanager
def endpoint(status: int, body: Mapping[str, object], seen: list[dict[str, str]]) -> Iterator[str]:
    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            seen.append({**dict(self.headers), "form": self.rfile.read(length).decode()})
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join(60)


def credentials(url: str) -> TokenEndpoint:
    config = make(
        ConsumerConfig,
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": url,
            "sasl_oauthbearer_client_id": "me",
            "sasl_oauthbearer_client_secret": "top-secret",
            "sasl_oauthbearer_scope": "kafka",
        },
    )
    return TokenEndpoint(config, 60)


def test_a_token_is_got_once_while_it_is_valid() -> None:
    seen: list[dict[str, str]] = []
    with endpoint(200, {"access_token": "abc", "expires_in": 3600}, seen) as url:
        tokens = credentials(url)
        assert [tokens.token(), tokens.token()] == ["abc", "abc"]
    (request,) = seen
    assert request["Authorization"] == "Basic bWU6dG9wLXNlY3JldA=="
    assert request["form"] == "grant_type=client_credentials&scope=kafka"


def test_a_token_that_does_not_say_how_long_it_is_valid_is_used_once() -> None:
    seen: list[dict[str, str]] = []
    with endpoint(200, {"access_token": "abc"}, seen) as url:
        tokens = credentials(url)
        tokens.token()
        tokens.token()
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("status", "body", "kind", "why"),
    [
        (401, {"error": "invalid_client"}, AuthenticationError, "invalid_client"),
        (400, ["x"], AuthenticationError, "HTTP 400"),
        (503, {}, BrokerUnavailableError, "HTTP 503"),
        (429, {}, BrokerUnavailableError, "HTTP 429"),
        (302, {"access_token": "a"}, AuthenticationError, "/token gives .* not followed"),
        (404, {}, AuthenticationError, "HTTP 404; correct sasl.oauthbearer.token.endpoint.url"),
        (200, {"token": "a"}, AuthenticationError, "missing required field `access_token`"),
        (200, {"access_token": 5}, AuthenticationError, r"got `int` - at `\$.access_token`"),
        (200, {"access_token": "a", "expires_in": "soon"}, AuthenticationError, "expires_in"),
        (200, {"access_token": "a", "expires_in": "nan"}, AuthenticationError, "expires_in"),
    ],
)
def test_an_endpoint_that_gives_none(
    status: int, body: Any, kind: type[KohortError], why: str
) -> None:
    with endpoint(status, body, []) as url, pytest.raises(kind, match=why) as caught:
        credentials(url).token()
    assert "top-secret" not in str(caught.value)


def test_a_life_in_quotes_is_a_number_of_seconds() -> None:
    seen: list[dict[str, str]] = []
    with endpoint(200, {"access_token": "abc", "expires_in": "3600"}, seen) as url:
        tokens = credentials(url)
        assert [tokens.token(), tokens.token()] == ["abc", "abc"]
    assert len(seen) == 1


def test_an_endpoint_that_is_not_trusted_is_final(
    server_context: ssl.SSLContext, embedded_broker: str
) -> None:
    with tunnel(server_context, int(embedded_broker.rpartition(":")[2])) as port:
        url = f"https://localhost:{port}/token"
        with pytest.raises(AuthenticationError, match=r"set https\.ca\.location") as caught:
            credentials(url).token()
    assert f"the token endpoint {url} has a certificate" in caught.value.message


# ---------------------------------------------------------------------------------- a tunnel


@contextmanager
def tunnel(context: ssl.SSLContext, to: int) -> Iterator[int]:
    """TLS in front of a broker's port without TLS."""
    ports: queue.Queue[int] = queue.Queue()
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain_reader, plain_writer = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(copy(reader, plain_writer), copy(plain_reader, writer))

    async def serve() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
        ports.put(server.sockets[0].getsockname()[1])
        await over.wait()
        server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield ports.get(timeout=60)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@pytest.mark.parametrize("acks", [0, "all"])
def test_large_frames_and_records_without_an_answer(
    acks: Any, authority: Authority, server_context: ssl.SSLContext, tmp_path: Path
) -> None:
    """Frames are longer than a TLS record, and than a single send or receive."""
    values = [bytes([number]) * (400_000 + number) for number in range(30)]
    (own,) = free_ports(1)
    with (
        tunnel(server_context, own) as port,
        EmbeddedBroker(tmp_path, port=own, advertised=f"localhost:{port}") as broker,
    ):
        given = settings(port, authority, default_api_timeout_ms=60_000)
        given["socket_connection_setup_timeout_ms"] = 60_000
        broker.create_topic("t", partitions=1)
        producing = {name: each for name, each in given.items() if "default_api" not in name}
        with Producer(**producing, acks=acks) as producer:
            for value in values:
                producer.send("t", value)
        with Consumer(**given, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            seen: list[object] = []
            while len(seen) < len(values):
                seen += [each.value for found in consumer.poll(1_000).values() for each in found]
    assert seen == values
