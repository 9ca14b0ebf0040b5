"""A refusal by the operating system is another temporary reason why a broker is unreachable."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kohort import EmbeddedBroker
from kohort.client.config.definitions import ClientConfig, ProducerConfig
from kohort.client.consumer.aio import AsyncConsumer
from kohort.client.consumer.commits.committer import Committer
from kohort.client.net import connecting
from kohort.client.net.cluster import Cluster
from kohort.client.net.connecting import Address, connect
from kohort.client.net.connection import Connection
from kohort.client.net.coordinator import Coordinator
from kohort.client.net.incidents import Incidents
from kohort.client.net.metadata import ClusterMetadata
from kohort.client.net.refresh_loop import RefreshLoop
from kohort.client.net.security.auth import NoAuthentication
from kohort.client.net.security.context import Security
from kohort.client.net.security.tls import Tls
from kohort.client.producer.aio import AsyncProducer
from kohort.client.producer.init_producer_id import identity_of
from kohort.errors import BrokerUnavailableError
from kohort.spark.source.fetch import range_connection
from kohort.spark.source.fetch.range_connection import BlockingConnection
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.client.loops import on_a_loop

Refused = Callable[[int], OSError | None]


class Shortage:
    """Replaces the module `socket` where clients connect.

    Args:
        refused: Returns why there is no socket of a family; None if there is one.
    """

    def __init__(self, refused: Refused) -> None:
        self.refused = refused

    def __getattr__(self, name: str) -> object:
        return getattr(socket, name)

    def socket(self, family: int, kind: int, protocol: int) -> socket.socket:
        error = self.refused(family)
        if error is not None:
            raise error
        return socket.socket(family, kind, protocol)


def no_descriptors(_: int) -> OSError:
    return OSError(errno.EMFILE, "Too many open files")


def no_ipv6(family: int) -> OSError | None:
    if family == socket.AF_INET6:
        return OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
    return None


@pytest.fixture
def shortage(monkeypatch: pytest.MonkeyPatch) -> Shortage:
    made = Shortage(no_descriptors)
    monkeypatch.setattr(connecting, "socket", made)
    monkeypatch.setattr(range_connection, "socket", made)
    return made


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Address]:
    """The result of each lookup of a name."""
    addresses: list[Address] = []
    monkeypatch.setattr(connecting, "look_up", lambda *_: addresses)
    monkeypatch.setattr(range_connection, "look_up", lambda *_: addresses)
    return addresses


def machine() -> Connection:
    return Connection(client_id="test", authenticator=NoAuthentication())


@on_a_loop
async def test_without_descriptors_no_connection_is_opened(shortage: Shortage) -> None:
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1: Too many open files"):
        await connect("127.0.0.1", 1, machine(), 10)
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1: Too many open files"):
        BlockingConnection("127.0.0.1", 1, "test", 10_000)


@on_a_loop
async def test_an_address_of_a_family_that_the_kernel_lacks_is_passed_over(
    shortage: Shortage, found: list[Address]
) -> None:
    shortage.refused = no_ipv6
    kind = socket.SOCK_STREAM

    def blocking(port: int) -> Awaitable[object]:
        return asyncio.to_thread(BlockingConnection, "broker", port, "test", 60_000)

    def on_the_loop(port: int) -> Awaitable[object]:
        return connect("broker", port, machine(), 60)

    for opens in blocking, on_the_loop:
        accepted = asyncio.Event()
        server = await asyncio.start_server(partial(hang_up, accepted), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found[:] = [
            (socket.AF_INET6, kind, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, kind, 6, "", ("127.0.0.1", port)),
        ]
        with pytest.raises(BrokerUnavailableError, match=r"closed|reset"):
            await opens(port)
        assert accepted.is_set()
        server.close()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port with a full queue, so that no one answers: the kernel drops incoming connections."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.2", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        with ExitStack() as waiting:
            for _ in range(2):
                sock = waiting.enter_context(socket.socket())
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.2", port))
            yield port


@pytest.mark.parametrize("blocking", [False, True])
@on_a_loop
async def test_an_address_that_says_nothing_leaves_time_for_the_others(
    blocking: bool, found: list[Address], silent: int, tmp_path: Path
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        found[:] = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, at))
            for host, at in (("127.0.0.2", silent), ("127.0.0.1", port))
        ]
        if blocking:
            made = await asyncio.to_thread(BlockingConnection, "broker", port, "test", 1_500)
            made.close()
        else:
            (await connect("broker", port, machine(), 1.5)).close()


def hang_up(accepted: asyncio.Event, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    accepted.set()
    writer.close()


@on_a_loop
async def test_a_host_name_that_tls_does_not_take(found: list[Address]) -> None:
    secured = Security(Tls(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)), NoAuthentication())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found.append((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)))
        with pytest.raises(BrokerUnavailableError, match=rf"\.broker:{port}: .*"):
            await connect(".broker", port, machine(), 60, security=secured)
        with pytest.raises(BrokerUnavailableError, match=rf"\.broker:{port}: .*"):
            BlockingConnection(".broker", port, "test", 60_000, secured)


class Defect:
    """Fails once with an unexpected error, and then calls back."""

    def __init__(self) -> None:
        self.calls = 0
        self.again = asyncio.Event()

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("a surprise")
        self.again.set()


@on_a_loop
async def test_metadata_is_kept_whatever_one_attempt_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    defect = Defect()

    async def refresh() -> None:
        defect()

    config = ClientConfig(bootstrap_servers="h:1")
    loop = RefreshLoop(config, refresh, ClusterMetadata, lambda: False, Incidents("consumer test"))
    loop.request()
    await defect.again.wait()
    assert loop.task is not None
    loop.task.cancel()
    assert "consumer test: asking for metadata failed because of a bug" in caplog.text
    assert "RuntimeError: a surprise" in caplog.text


@on_a_loop
async def test_a_producer_id_is_asked_for_again_whatever_one_attempt_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    defect = Defect()

    async def send_any(_: object) -> object:
        defect()
        return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=0)

    cluster = cast(
        "Cluster", SimpleNamespace(send_any=send_any, incidents=Incidents("producer test"))
    )
    noted: list[Exception] = []
    config = ProducerConfig(bootstrap_servers="h:1")
    assert (await identity_of(config, cluster, noted.append)).producer_id == 7
    assert "a bug in the producer: RuntimeError: a surprise" in str(noted[0])
    assert "RuntimeError: a surprise" in caplog.text


@on_a_loop
async def test_auto_commit_tries_again_whatever_one_attempt_raises(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(ClientConfig(bootstrap_servers="h:1"))
    coordinator = Coordinator(cluster, "g")

    async def reach() -> None:
        raise RuntimeError("a surprise")

    monkeypatch.setattr(coordinator, "reach", reach)
    committer = Committer(cluster, coordinator, None)
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(1)}
    assert not await committer.try_quietly(offsets)
    assert "auto-commit failed because of a bug" in caplog.text
    await cluster.close()


@on_a_loop
async def test_clients_go_on_once_there_are_descriptors_again(
    shortage: Shortage, tmp_path: Path
) -> None:
    """The shortage ends once the refresh loop and the search for a producer id have met it."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", 1)
        servers = broker.bootstrap_servers
        async with AsyncProducer(bootstrap_servers=servers, max_block_ms=1_000) as producer:
            with pytest.raises(BrokerUnavailableError, match="Too many open files"):
                _ = await producer.send("t", b"v")
            async with AsyncConsumer(
                "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
            ) as consumer:
                with pytest.raises(BrokerUnavailableError, match="Too many open files"):
                    await consumer.poll(1_000)
                shortage.refused = lambda _: None
                await (await producer.send("t", b"v"))
                while not (found := await consumer.poll(1_000)):
                    pass
                assert found[TopicPartition("t", 0)][0].value == b"v"
