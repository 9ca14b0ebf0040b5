"""The fate of the connection over which a client learned the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client.config.definitions import ClientConfig
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster, Purpose
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.client.loops import on_a_loop


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with EmbeddedBroker(folder) as started:
        yield started.bootstrap_servers


class Front:
    """Forwards connections to a broker whose metadata names the broker itself.

    Attributes:
        accepted: Number of connections.
        ended: Done when the client has closed the first of them.
    """

    def __init__(self, broker: str) -> None:
        self._host, _, port = broker.rpartition(":")
        self._port = int(port)
        self.accepted = 0
        self.ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        answers, requests = await asyncio.open_connection(self._host, self._port)
        back = asyncio.create_task(self._pass_on(answers, writer))
        await self._pass_on(reader, requests)
        self.ended.set()
        await back

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            sink.write(data)
        sink.close()


@on_a_loop
async def test_the_connection_to_a_broker_is_kept_as_such(broker: str) -> None:
    cluster = Cluster(ClientConfig(bootstrap_servers=broker))
    try:
        metadata = await cluster.refresh(Deadline(None))
        node_id = next(iter(metadata.nodes))
        connection = cluster.opened(node_id, Purpose.CONTROL)
        assert connection is not None
        await cluster.send(node_id, ApiVersionsRequest())
        assert cluster.opened(node_id, Purpose.CONTROL) is connection
    finally:
        await cluster.close()
    assert not connection.is_open


@on_a_loop
async def test_one_connection_is_enough_to_ask_several_things(broker: str) -> None:
    """It is closed once the brokers are known, if it does not belong to one of them."""
    async with Front(broker) as front:
        cluster = Cluster(ClientConfig(bootstrap_servers=front.address))
        try:
            for _ in range(2):
                await asyncio.gather(
                    cluster.send_any(FindCoordinatorRequest(key_type=0, coordinator_keys=("g",))),
                    cluster.send_any(ApiVersionsRequest()),
                )
            assert front.accepted == 1
            assert not front.ended.is_set()
            metadata = await cluster.refresh(Deadline(None))
            assert cluster.opened(next(iter(metadata.nodes)), Purpose.CONTROL) is None
            await front.ended.wait()
        finally:
            await cluster.close()


@on_a_loop
async def test_a_connection_that_broke_is_opened_again(broker: str) -> None:
    cluster = Cluster(ClientConfig(bootstrap_servers=broker))
    try:
        metadata = await cluster.refresh(Deadline(None))
        node_id = next(iter(metadata.nodes))
        before = cluster.opened(node_id, Purpose.CONTROL)
        assert before is not None
        before.close()
        await cluster.send_any(ApiVersionsRequest())
        assert cluster.opened(node_id, Purpose.CONTROL) is not before
    finally:
        await cluster.close()
