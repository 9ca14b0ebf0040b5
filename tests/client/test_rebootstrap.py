"""A client goes back to its bootstrap servers when no known broker can be reached (KIP-899).

One answer may name a wrong address: for a moment, or because a bit flipped on the way.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort import Consumer, Producer, TopicPartition
from tests.broker.processes import eventually
from tests.client.garbling_proxy import METADATA, GarblingProxy
from tests.client.reading_cases import COUNT
from tests.real_kafka import foreign

LONG = 3_600_000  # the metadata's age does not help


@pytest.fixture
def proxy(bootstrap: str) -> Iterator[GarblingProxy]:
    with GarblingProxy(bootstrap) as made:
        yield made


@contextmanager
def misled(proxy: GarblingProxy, times: int = 1, *, accepts: bool = False) -> Iterator[None]:
    """Have the next metadata name a port where nobody listens, or where nobody answers."""
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
