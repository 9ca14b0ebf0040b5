"""Servers with another protocol are recognised, and so are such clients by the broker."""

from __future__ import annotations

import http.client
import http.server
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kohort import AdminClient, Consumer, TopicPartition
from kohort.broker import EmbeddedBroker
from kohort.client.net.connection import Throttled
from kohort.errors import KohortError, RemoteProtocolError, TlsError
from kohort.spark.source.fetch.range_connection import BlockingConnection
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.strangers import protocol_of
from tests.broker.processes import eventually

NEVER_MS = 600_000
SASL = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "alice-secret",
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tls")
    path = folder / "both.pem"
    names = ["-subj", "/CN=localhost", "-days", "2", "-nodes"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return path


@contextmanager
def served(server: http.server.HTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # its name there


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None: ...


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """A server that answers the first bytes of each client, and waits until it hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.sendall(answer(client.recv(1 << 16)))
                while client.recv(1 << 16):
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def tls_alert(certificate: Path) -> bytes:
    """The alert with which OpenSSL, or a Java server, refuses a plaintext client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(b"\x16\x03\x01\x00\x05hello")
    with pytest.raises(ssl.SSLError):
        context.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
    return outgoing.read()


@contextmanager
def https(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = Server(("127.0.0.1", 0), Quiet)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    with served(server) as address:
        yield address


def refusals(address: str) -> list[str]:
    """The error of each kind of client for a server; none waits for it to become a broker."""
    host, _, port = address.rpartition(":")
    place = TopicPartition("t", 0)
    settings: dict[str, Any] = {"bootstrap_servers": address, "default_api_timeout_ms": NEVER_MS}
    with AdminClient(**settings) as admin, closing(Consumer(**settings)) as consumer:
        consumer.assign([place])
        calls: list[Callable[[], object]] = [
            admin.list_topics,
            lambda: consumer.end_offsets([place]),
            lambda: BlockingConnection(host, int(port), "client", 30_000),
        ]
        found = []
        for call in calls:
            with pytest.raises(RemoteProtocolError) as caught:
                call()
            found.append(str(caught.value))
        return found


def test_a_tls_port(certificate: Path, caplog: pytest.LogCaptureFixture) -> None:
    alert = tls_alert(certificate)
    with answering(lambda _: alert) as address:
        for text in refusals(address):
            assert f"{address}: the port speaks TLS" in text
            assert "set SSL or SASL_SSL" in text
        with Consumer(bootstrap_servers=address) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            eventually(lambda: told(consumer), "poll says that the port speaks TLS")
    lines = [each.message for each in caplog.records]
    assert all("speaks TLS" in each for each in lines)
    assert len(lines) == 3, "one line for each client"


def told(consumer: Consumer) -> bool:
    try:
        consumer.poll(200)
    except KohortError as error:
        return "speaks TLS" in str(error)
    return False


def test_a_tls_port_that_hangs_up(certificate: Path) -> None:
    """OpenSSL 3 does this when it receives no TLS; so the client checks whether it speaks TLS."""
    with https(certificate) as address:
        settings: dict[str, Any] = {"bootstrap_servers": address}
        for others in ({}, SASL):
            waiting = {**settings, **others, "default_api_timeout_ms": NEVER_MS}
            with (
                AdminClient(**waiting) as admin,
                pytest.raises(
                    TlsError, match=r"the listener has TLS: set security\.protocol"
                ) as told,
            ):
                admin.list_topics()
            assert address in str(told.value)
            assert told.value.fatal
        host, _, port = address.rpartition(":")
        with pytest.raises(TlsError, match="the listener has TLS"):
            BlockingConnection(host, int(port), "c", 60_000)


@pytest.mark.parametrize("version", ["HTTP/0.9", "HTTP/1.1"])
def test_an_http_server(version: str) -> None:
    class Old(Quiet):
        default_request_version = version

    # It answers once it has read a line, and treats the request as an old HTTP version.
    with (
        served(Server(("127.0.0.1", 0), Old)) as address,
        AdminClient(bootstrap_servers=address, client_id="a line\r\n\r\n") as admin,
        pytest.raises(RemoteProtocolError, match="the port speaks HTTP") as caught,
    ):
        admin.list_topics()
    assert address in str(caught.value)
    assert "check host and port in bootstrap.servers" in str(caught.value)


@pytest.mark.parametrize(
    ("banner", "name"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"-ERR unknown command\r\n", "-ERR unknown command"),
        (b"220 mail.example ESMTP\r\n", "220 mail.example ESMTP"),
        (b"E\x00\x00\x00\x8bSFATAL\x00", "PostgreSQL"),
        (b"\x4a\x00\x00\x00\x0a8.0.33\x00", "MySQL"),
        (b"AMQP\x00\x00\x09\x01", "AMQP"),
        (b"ERROR\r\n", "ERROR"),
    ],
)
def test_other_servers(banner: bytes, name: str) -> None:
    with answering(lambda _: banner) as address:
        for text in refusals(address):
            assert text.startswith(f"{address}: the port speaks ")
            assert name in text


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff\x00", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x00\x10"]
)
def test_what_is_not_known_is_not_guessed(data: bytes) -> None:
    assert protocol_of(data) is None


def test_a_broker_names_a_client_that_wants_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        context = ssl.create_default_context()
        with (
            socket.create_connection((host, int(port))) as plain,
            pytest.raises(OSError, match=r"reset|EOF|closed"),
        ):
            context.wrap_socket(plain, server_hostname="localhost")
    (line,) = [each.message for each in caplog.records]
    assert "the client speaks TLS" in line
    assert "security.protocol=PLAINTEXT" in line


def test_a_broker_names_a_browser(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        EmbeddedBroker(tmp_path) as broker,
        closing(http.client.HTTPConnection(broker.bootstrap_servers)) as browser,
    ):
        browser.request("GET", "/topics")
        with pytest.raises((OSError, http.client.HTTPException)):
            browser.getresponse()
    (line,) = [each.message for each in caplog.records]
    assert "the client speaks HTTP" in line


def test_a_long_pause_is_told_where_records_are_read_without_a_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EmbeddedBroker() as broker:
        host, port = broker.bootstrap_servers.split(":")
        connection = BlockingConnection(host, int(port), "test", NEVER_MS)
        with closing(connection):
            connection._machine._events.append(Throttled(asked_ms=2**30, pause_ms=60_000))
            request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            answer = connection.request(request, NEVER_MS)
    assert answer.error_code == 0
    assert "asks for a pause of 1073741824 ms" in caplog.text
