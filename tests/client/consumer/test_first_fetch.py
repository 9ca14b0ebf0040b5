"""New partitions and seeks do not wait for the long poll of earlier partitions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kohort.broker import EmbeddedBroker
from kohort.client import Consumer, Producer
from kohort.types import TopicPartition

LONG_MS = 20_000
# Longer than any poll here: no empty fetch is answered in time.
LONGER_MS = 3 * LONG_MS
RECORDS = 3


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(num_partitions=2) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic with the same records in both partitions."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(RECORDS):
            for partition in range(2):
                producer.send(name, b"%d" % number, partition=partition)
    return name


@pytest.fixture
def client(bootstrap: str, topic: str) -> Iterator[Consumer]:
    """A consumer that has read partition 0 to its end and waits there for more."""
    with Consumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=LONGER_MS) as made:
        made.assign([TopicPartition(topic, 0)])
        made.seek(TopicPartition(topic, 0), 0)
        assert read(made) == [b"0", b"1", b"2"]
        assert made.poll(200) == {}
        yield made


def read(client: Consumer, count: int = RECORDS) -> list[bytes | None]:
    """Read this many values; fewer if a poll ends without any."""
    found: list[bytes | None] = []
    while len(found) < count and (polled := client.poll(LONG_MS)):
        found += [record.value for records in polled.values() for record in records]
    return found


def test_a_partition_that_is_new_is_read_at_once(client: Consumer, topic: str) -> None:
    new = TopicPartition(topic, 1)
    client.assign([TopicPartition(topic, 0), new])
    client.seek(new, 0)
    assert read(client) == [b"0", b"1", b"2"]


def test_after_a_seek_records_come_at_once(client: Consumer, topic: str) -> None:
    client.seek(TopicPartition(topic, 0), 1)
    assert read(client, 2) == [b"1", b"2"]


def test_a_partition_that_was_paused_is_read_at_once(
    client: Consumer, bootstrap: str, topic: str
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    client.assign([first, second])
    client.seek(second, 0)
    assert read(client) == [b"0", b"1", b"2"]
    client.pause(second)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"first", partition=0).result()
        assert read(client, 1) == [b"first"]
        assert client.poll(200) == {}
        producer.send(topic, b"second", partition=1).result()
    client.resume(second)
    assert read(client, 1) == [b"second"]


def test_what_two_fetches_find_is_read_once(client: Consumer, bootstrap: str, topic: str) -> None:
    """The long poll may end, and ask for new partitions while the extra fetch reads them."""
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    client.assign([first, second])
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(50):
            sent = producer.send(topic, b"more", partition=0)
            client.seek(second, 0)
            found = read(client, RECORDS + 1)
            assert sorted(found, key=str) == [b"0", b"1", b"2", b"more"]
            sent.result()
