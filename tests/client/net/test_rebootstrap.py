"""A client goes back to its bootstrap servers when no known broker can be reached (KIP-899).

It also does so when a broker requests it, and when no broker has answered for long (KIP-1102). An
answer may contain a wrong address: temporarily, or because a bit flipped in transit.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort import Consumer, Producer, TopicPartition
from kohort.client.config.definitions import ClientConfig
from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster, Purpose
from kohort.errors import ErrorCode, KafkaError
from kohort.spark.source.fetch.range_connection import BlockingConnection, ConnectionPool
from tests.broker.processes import eventually
from tests.client.consumer.reading_cases import COUNT
from tests.client.garbling_proxy import METADATA, GarblingProxy
from tests.client.loops import on_a_loop
from tests.real_kafka import foreign

LONG = 3_600_000  # no refresh because of the metadata's age


@pytest.fixture
def proxy(bootstrap: str) -> Iterator[GarblingProxy]:
    with GarblingProxy(bootstrap) as made:
        yield made


@contextmanager
def misled(proxy: GarblingProxy, times: int = 1, *, accepts: bool = False) -> Iterator[None]:
    """Make the next metadata name a port that is closed, or one that does not answer."""
    right = int(proxy.bootstrap_servers.rpartition(":")[2]).to_bytes(4, "big")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        if accepts:
            nobody.listen()
        wrong = nobody.getsockname()[1].to_bytes(4, "big")
        proxy.garble(lambda answer: answer.replace(right, wrong), METADATA, times=times)
        yield
        assert proxy.garbled[METADATA] == times


def read_all(consumer: Consumer) -> None:
    offsets: list[int] = []

    def poll() -> bool:
        for records in consumer.poll(200).values():
            offsets.extend(each.offset for each in records)
        return len(offsets) >= COUNT

    eventually(poll, "all is read")
    assert offsets == list(range(COUNT))


MEMBERS: list[dict[str, Any]] = [
    {},
    {"group_protocol": "classic"},
    {"group_protocol": "consumer"},
]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("settings", MEMBERS, ids=["no group", "classic", "consumer"])
def test_a_consumer_reads_after_a_wrong_address(
    proxy: GarblingProxy, topic: str, settings: dict[str, Any], times: int
) -> None:
    group = {"group_id": topic, **settings} if settings else {}
    with (
        misled(proxy, times),
        Consumer(
            bootstrap_servers=proxy.bootstrap_servers,
            auto_offset_reset="earliest",
            metadata_max_age_ms=LONG,
            **group,
        ) as consumer,
    ):
        if settings:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, 0)])
        read_all(consumer)


def test_a_broker_that_accepts_and_says_nothing_is_given_up(
    proxy: GarblingProxy, topic: str
) -> None:
    with (
        misled(proxy, accepts=True),
        Consumer(
            topic,
            bootstrap_servers=proxy.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            metadata_max_age_ms=LONG,
            socket_connection_setup_timeout_ms=500,
        ) as consumer,
    ):
        read_all(consumer)


def test_a_producer_sends_after_a_wrong_address(bootstrap: str, proxy: GarblingProxy) -> None:
    topic = foreign.new_topic(bootstrap)
    with (
        misled(proxy),
        Producer(bootstrap_servers=proxy.bootstrap_servers, metadata_max_age_ms=LONG) as producer,
    ):
        assert producer.send(topic, b"value").result(30).offset == 0


def test_a_client_whose_brokers_are_there_asks_no_more_than_before(
    proxy: GarblingProxy, topic: str
) -> None:
    asked: list[bytes] = []

    def counted(answer: bytes) -> bytes:
        asked.append(answer)
        return answer

    proxy.garble(counted, METADATA)
    with Consumer(
        topic,
        bootstrap_servers=proxy.bootstrap_servers,
        group_id=topic,
        auto_offset_reset="earliest",
    ) as consumer:
        read_all(consumer)
        before = len(asked)
        for _ in range(10):
            consumer.poll(100)
    assert len(asked) == before <= 2


def sent_away(answer: bytes) -> bytes:
    """The same answer of version 13, with REBOOTSTRAP_REQUIRED as its code."""
    return answer[:-3] + ErrorCode.REBOOTSTRAP_REQUIRED.to_bytes(2, "big") + b"\0"


@on_a_loop
async def test_a_broker_may_send_a_client_to_its_bootstrap_servers(
    bootstrap: str, proxy: GarblingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """The known broker is forgotten with its connections, also if it is a bootstrap server."""
    cluster = Cluster(ClientConfig(bootstrap_servers=proxy.bootstrap_servers))
    (known,) = (await cluster.refresh(Deadline(60_000))).nodes
    connection = await cluster.connection(known, Purpose.CONTROL)
    proxy.garble(sent_away, METADATA, times=1)
    metadata = await cluster.refresh(Deadline(60_000))
    assert not connection.is_open
    assert set(metadata.nodes) == {known}
    assert "again: a broker requested it (REBOOTSTRAP_REQUIRED)" in caplog.text
    await cluster.close()


@on_a_loop
async def test_bootstrap_servers_that_send_a_client_away_are_named(proxy: GarblingProxy) -> None:
    cluster = Cluster(ClientConfig(bootstrap_servers=proxy.bootstrap_servers))
    proxy.garble(sent_away, METADATA)
    with pytest.raises(KafkaError, match=rf"{proxy.bootstrap_servers}: .*REBOOTSTRAP_REQUIRED"):
        await cluster.refresh(Deadline(300))
    await cluster.close()


@on_a_loop
async def test_known_brokers_that_say_nothing_are_not_waited_for(
    bootstrap: str, proxy: GarblingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """The bootstrap servers are asked long before a request times out."""
    with misled(proxy, accepts=True):
        config = ClientConfig(
            bootstrap_servers=proxy.bootstrap_servers,
            socket_connection_setup_timeout_ms=60_000,
            request_timeout_ms=60_000,
            metadata_recovery_rebootstrap_trigger_ms=200,
        )
        cluster = Cluster(config)
        wrong = await cluster.refresh(Deadline(50_000))
        right = await cluster.refresh(Deadline(50_000))
        assert wrong.nodes != right.nodes
        assert "no known broker has answered a metadata request for 200 ms" in caplog.text
        await cluster.close()


@on_a_loop
async def test_a_connection_that_was_idle_for_long_is_not_used_again(bootstrap: str) -> None:
    """A load balancer may have dropped it, so that a request would wait for its whole timeout."""
    config = ClientConfig(bootstrap_servers=bootstrap)
    cluster = Cluster(config)
    (node,) = (await cluster.refresh(Deadline(60_000))).nodes
    connection = await cluster.connection(node, Purpose.FETCH)
    assert await cluster.connection(node, Purpose.FETCH) is connection
    connection.used_at_s -= config.connections_max_idle_ms / 1000 + 1
    assert cluster.opened(node, Purpose.FETCH) is None
    assert not connection.is_open
    assert (await cluster.connection(node, Purpose.FETCH)).is_open
    await cluster.close()


@on_a_loop
async def test_idle_connections_are_closed_when_metadata_comes(bootstrap: str) -> None:
    cluster = Cluster(ClientConfig(bootstrap_servers=bootstrap))
    (node,) = (await cluster.refresh(Deadline(60_000))).nodes
    connection = await cluster.connection(node, Purpose.FETCH)
    connection.used_at_s -= 600
    await cluster.refresh(Deadline(60_000))
    assert not connection.is_open
    await cluster.close()


def test_ranges_use_no_connection_that_was_idle_for_long(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    pool, connections = ConnectionPool(), []
    for idle_s in (600, 0, 700):
        connection = BlockingConnection(host, int(port), "test", 60_000)
        pool.give(host, int(port), "made", connection)
        connection.used_at_s -= idle_s
        connections.append(connection)
    assert pool.take(host, int(port), "made", 540_000) is connections[1]
    assert pool.take(host, int(port), "made", 540_000) is None
    connections[1].close()
