"""Servers that are missing, not Kafka, or hostile: an error in time, never a hang."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kohort.client import AsyncConsumer
from kohort.client.config.definitions import ClientConfig
from kohort.client.net.cluster import Cluster, Purpose
from kohort.client.net.metadata import ClusterMetadata, Node
from kohort.errors import BrokerUnavailableError, KohortError, RequestTimedOutError
from kohort.spark.source.fetch.range_connection import BlockingConnection
from kohort.types import TopicPartition
from kohort.wire import apis
from kohort.wire.codec import frame as frames
from kohort.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kohort.wire.messages.membership import JoinGroupRequest, JoinGroupResponse
from kohort.wire.messages.metadata import MetadataRequest
from tests.client.loops import on_a_loop
from tests.real_kafka.broker import free_ports

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

SERVED = ApiVersionsResponse(
    error_code=0,
    api_keys=tuple(
        ApiVersion(api_key=request.api_key, min_version=0, max_version=request.max_version)
        for request, _ in apis.pairs()
    ),
)


@asynccontextmanager
async def listening(peer: Peer) -> AsyncIterator[str]:
    """A server on loopback that passes every connection to `peer`."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await peer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for writer in writers:
            writer.close()


def cluster_of(address: str) -> Cluster:
    """The cluster of a client that knows one broker."""
    host, _, port = address.rpartition(":")
    cluster = Cluster(ClientConfig(bootstrap_servers=address))
    cluster.metadata = ClusterMetadata(nodes={1: Node(1, host, int(port), None)})
    return cluster


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer ApiVersions like a broker."""
    request = await next_request(reader)
    writer.write(frames.encode_response(SERVED, request.version, request.correlation_id))


async def next_request(reader: asyncio.StreamReader) -> frames.ReceivedRequest:
    length = int.from_bytes(await reader.readexactly(4), "big")
    return frames.decode_request(memoryview(await reader.readexactly(length)))


async def speaks_http(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


async def sends_nothing_and_empty_frames(
    _: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    writer.write(bytes(4) * 100)
    await writer.drain()


async def hangs_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def greets_and_hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The connection is opened, and closed before the waiting caller can use it."""
    await greet(reader, writer)
    writer.close()


async def is_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def claims_a_huge_frame(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greet(reader, writer)
    await next_request(reader)
    writer.write(struct.pack(">i", 0x7FFFFFFF))
    await reader.read()


async def answers_with_garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greet(reader, writer)
    request = await next_request(reader)
    body = struct.pack(">i", request.correlation_id) + b"\xff" * 200
    writer.write(struct.pack(">i", len(body)) + body)
    await reader.read()


async def cuts_its_answer_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await greet(reader, writer)
    request = await next_request(reader)
    body = struct.pack(">i", request.correlation_id)
    writer.write(struct.pack(">i", 1000) + body)
    writer.close()


async def answers_another_question(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await greet(reader, writer)
    request = await next_request(reader)
    writer.write(struct.pack(">ii", 4, request.correlation_id + 7))
    await reader.read()


@pytest.mark.parametrize(
    "peer",
    [
        speaks_http,
        sends_nothing_and_empty_frames,
        hangs_up,
        greets_and_hangs_up,
        is_silent,
        claims_a_huge_frame,
        answers_with_garbage,
        cuts_its_answer_off,
        answers_another_question,
    ],
)
@on_a_loop
async def test_a_bad_server_costs_one_error_that_names_it(peer: Peer) -> None:
    async with listening(peer) as address:
        consumer = AsyncConsumer(
            bootstrap_servers=address,
            request_timeout_ms=100,
            default_api_timeout_ms=300,
            reconnect_backoff_max_ms=100,
        )
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(KohortError, match=address):
            await consumer.poll(timeout_ms=300)
        with pytest.raises(KohortError, match=address):
            await consumer.end_offsets([TopicPartition("t", 0)])
        await consumer.close()


@on_a_loop
async def test_a_broker_that_ends_a_connection_once_it_is_made_can_be_tried_again() -> None:
    """A waiting caller gets the connection a few turns of the loop after it has ended.

    Treated as a caller's mistake, this ended a KIP-848 member and failed a producer's batches.
    """
    async with listening(greets_and_hangs_up) as address:
        cluster = cluster_of(address)
        for purpose in Purpose:
            with pytest.raises(BrokerUnavailableError) as caught:
                await cluster.send(1, MetadataRequest(topics=()), purpose=purpose)
            assert caught.value.retriable
        await cluster.close()


@on_a_loop
async def test_a_join_does_not_wait_behind_one_that_was_given_up() -> None:
    """A broker answers the requests of a connection one by one, and holds a join."""
    connections = 0

    async def parks_the_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        is_first = connections == 1
        await greet(reader, writer)
        request = await next_request(reader)
        if is_first:
            parked.set()
            await reader.read()
        answer = JoinGroupResponse(
            error_code=0, protocol_name="range", leader="m", member_id="m", members=()
        )
        writer.write(frames.encode_response(answer, request.version, request.correlation_id))
        await reader.read()

    parked = asyncio.Event()
    async with listening(parks_the_first) as address:
        cluster = cluster_of(address)
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            member_id="",
            protocol_type="consumer",
            protocols=(),
        )
        given_up = asyncio.create_task(cluster.send(1, join, purpose=Purpose.JOIN))
        await parked.wait()
        answer = await cluster.send(1, join, purpose=Purpose.JOIN)
        assert answer.member_id == "m"
        with pytest.raises(RequestTimedOutError, match="a later request"):
            await given_up
        await cluster.close()


@on_a_loop
async def test_a_broker_that_is_not_there_is_named_with_the_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = free_ports(2)
    servers = f"127.0.0.1:{first},localhost:{second}"
    consumer = AsyncConsumer(
        "t", bootstrap_servers=servers, group_id="g", reconnect_backoff_max_ms=50
    )
    with pytest.raises(BrokerUnavailableError) as caught:
        await consumer.poll(timeout_ms=300)
    await consumer.close(timeout_s=1)
    message = str(caught.value)
    assert f"127.0.0.1:{first}: Connection refused" in message
    assert f"localhost:{second}" in message
    assert len(caplog.records) <= 1


@on_a_loop
async def test_a_name_that_does_not_exist_is_named() -> None:
    consumer = AsyncConsumer(bootstrap_servers="broker.invalid:9092")
    with pytest.raises(BrokerUnavailableError, match=r"broker\.invalid:9092"):
        await consumer.topics(timeout_ms=500)
    await consumer.close()


@pytest.mark.parametrize("host", ["a..b", "x" * 300, "a\0b", "", "\ud800", "\xfc..b"])
@on_a_loop
async def test_what_is_no_name_of_a_host_is_a_broker_that_cannot_be_reached(host: str) -> None:
    """A broker may report any name for other brokers."""
    cluster = cluster_of("localhost:1")
    cluster.metadata = ClusterMetadata(nodes={1: Node(1, host, 9092, None)})
    with pytest.raises(BrokerUnavailableError):
        await cluster.send(1, MetadataRequest(topics=()))
    await cluster.close()
    with pytest.raises(BrokerUnavailableError):
        BlockingConnection(host, 9092, "client", 1000)
